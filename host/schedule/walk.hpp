// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/schedule/schedule.hpp"

namespace tessera::schedule {

/// A turn of one loop.
struct Span {
  std::int64_t begin = 0, count = 0;
  bool is_first = true, is_last = true;
};

/// A turn of the innermost loop. `columns` lie in `piece`, and are its first or last range.
struct Turn {
  Phase phase = Phase::main;
  Span rows{}, piece{}, columns{}, depth{};
  bool is_first() const { return piece.is_first && columns.is_first; }
};

/// Calls `visit` with each part of `each`, and of what is left; once for an extent of 0.
template <class Visit>
void for_spans(std::int64_t begin, std::int64_t extent, std::int64_t each, const Visit& visit) {
  const std::int64_t end = begin + extent;
  Span span{begin, 0, true, false};
  do {
    span.count = std::min(each, end - span.begin);
    span.is_last = span.begin + each >= end;
    visit(span);
    span.begin += each;
    span.is_first = false;
  } while (span.begin < end);
}

/// A span, or the two parts of it before and from `at` on; 0: it is whole.
inline std::vector<Span> divided(const Span& span, std::int64_t at) {
  const std::int64_t within = at - span.begin;
  if (at == 0 || within <= 0 || within >= span.count) return {span};
  return {{span.begin, within, span.is_first, false},
          {at, span.count - within, false, span.is_last}};
}

/// True: the step runs in the turn.
inline bool runs_in(const Step& step, const Turn& turn) {
  const auto is_its = [&](unsigned loop, const Span& span) {
    return (step.loops & loop) != 0 || (step.when == When::first ? span.is_first : span.is_last);
  };
  return step.phase == turn.phase && (step.columns == 0 || step.columns == turn.columns.count) &&
         is_its(of_rows, turn.rows) && is_its(of_pieces, turn.piece) &&
         is_its(of_ranges, turn.columns) && is_its(of_depth, turn.depth);
}

/// Calls `enter(turn)` for every turn of a schedule, in order, and then `launch(step, turn)` for
/// each step that runs in it. A look takes rows before and from `split` on one after the other.
/// The depth goes from its end to its begin.
template <class Enter, class Launch>
void walk(const Schedule& s, std::int64_t split, const Enter& enter, const Launch& launch) {
  const Steps& steps = s.steps;
  const auto has = [&](Phase phase) {
    return std::any_of(steps.list.begin(), steps.list.end(),
                       [&](const Step& step) { return step.phase == phase; });
  };
  const bool phases[] = {has(Phase::look), has(Phase::look_again), has(Phase::main)};
  const auto run = [&](const Turn& turn) {
    enter(turn);
    for (const Step& step : steps.list) {
      if (runs_in(step, turn)) launch(step, turn);
    }
  };
  const auto over_columns = [&](Turn turn, const auto& use) {
    const std::int64_t each = turn.phase == Phase::main ? s.at.columns : steps.look_columns;
    for_spans(0, s.all.columns, s.piece, [&](const Span& piece) {
      turn.piece = piece;
      for_spans(piece.begin, piece.count, each, [&](const Span& columns) {
        turn.columns = columns;
        use(turn);
      });
    });
  };
  // Chunks are whole tiles of rows, the last one too.
  const auto over_rows = [&](const auto& use) {
    for_spans(0, s.chunks() * s.at.rows, s.at.rows, use);
  };
  const auto over_phases = [&](const Span& rows, std::size_t count) {
    constexpr Phase all[] = {Phase::look, Phase::look_again, Phase::main};
    for (std::size_t i = 0; i < count; ++i) {
      if (phases[i]) over_columns({.phase = all[i], .rows = rows, .depth = {0, s.all.depth}}, run);
    }
  };
  over_rows([&](const Span& rows) {
    for (const Span& part : divided(rows, split)) {
      over_phases(part, s.order == Order::rows ? 3 : 2);
    }
  });
  if (!phases[2]) return;
  if (s.order == Order::columns) {
    over_columns({.depth = {0, s.all.depth}}, [&](Turn turn) {
      over_rows([&](const Span& rows) {
        turn.rows = rows;
        run(turn);
      });
    });
  } else if (s.order == Order::depth) {
    for (std::int64_t part = s.depths() - 1; part >= 0; --part) {
      const std::int64_t begin = part * s.at.depth;
      over_columns({.rows = {0, steps.main_rows},
                    .depth = {begin, std::min(s.at.depth, s.all.depth - begin),
                              part == s.depths() - 1, part == 0}},
                   run);
    }
  }
}

}  // namespace tessera::schedule
