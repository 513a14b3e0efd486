# SPDX-License-Identifier: Apache-2.0
"""Cases by pairs, for the tests of the package and of tessera.torch."""

import itertools
import random


def pairs_of(factors, seed=0):
    """Cases (dicts) such that each two values of two factors are in some case together."""
    rng = random.Random(seed)
    names = list(factors)

    def pairs_in(case):
        return set(itertools.combinations([(name, case[name]) for name in names], 2))

    missing = set()
    for a, b in itertools.combinations(names, 2):
        missing |= {((a, i), (b, j)) for i in factors[a] for j in factors[b]}
    cases = []
    while missing:
        best, most = None, 0
        wanted = sorted(missing, key=repr)
        for _ in range(60):
            case = {name: rng.choice(factors[name]) for name in names}
            case.update(rng.choice(wanted))
            covered = len(pairs_in(case) & missing)
            if covered > most:
                best, most = case, covered
        missing -= pairs_in(best)
        cases.append(best)
    return cases
