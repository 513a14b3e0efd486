// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/dispatch/completion.hpp"
#include "host/dispatch/host_views.hpp"
#include "host/loss/request.hpp"
#include "reference/oracle/oracle.hpp"

/// What the `reference` implementations of the loss operators share: the way between views and the
/// oracle's vectors of double.
namespace tessera::loss {

/// The largest b * v that the reference takes: 2^26 logits are 512 MiB in double, of which it holds
/// up to four.
inline constexpr std::int64_t reference_max_logits = std::int64_t{1} << 26;

/// Why the reference does not take this loss; nothing: it does.
std::optional<std::string> reference_refusal(const LossRequest& request);

/// The loss half of a problem, with everything but x, w, bias or logits. `bad` says what is wrong
/// with the first row whose target is none; empty: nothing.
oracle::Problem reference_problem(const LossRequest& request, dispatch::HostViews& views,
                                  std::string& bad);

/// A host view [axes..., columns], as [rows, columns]. Rows that `problem` ignores stay 0, unread;
/// without a problem every row is read.
std::vector<double> read_matrix(const View& view, std::int64_t rows, std::int64_t columns,
                                const oracle::Problem* problem = nullptr);
/// A host view [axes...] of `count` elements in row-major order; empty when it is not given.
std::vector<double> read_vector(const View& view, std::int64_t count);

/// Where a problem has a layer: x [b, h], w [h, v] and the bias.
struct LayerArrays {
  std::vector<double>&x, &w, &bias;
};
/// Reads the views of a layer, of a width h; rows that `problem` ignores stay 0.
void read_layer(dispatch::HostViews& views, const View& x, const View& w, const View& bias,
                std::int64_t h, const oracle::Problem& problem, LayerArrays to);
/// Why a layer of this width is not copied in double; nothing: it is.
std::optional<std::string> layer_refusal(const LossRequest& request, std::int64_t h);

/// Writes the outputs that are given, the partial rows included, each rounded once.
void write_values(const LossRequest& request, const oracle::Values& values,
                  dispatch::HostViews& views);
/// Writes one number a row, where the view is given.
void write_vector(const MutableView& target, const std::vector<double>& values,
                  dispatch::HostViews& views);
/// Writes the elements of a host view in row-major order, or adds them in f32.
void write_matrix(const MutableView& view, const std::vector<double>& values, bool accumulate);

}  // namespace tessera::loss
