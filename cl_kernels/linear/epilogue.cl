// SPDX-License-Identifier: Apache-2.0
// How much forward makes of its logits: 0 nothing, 1 their maximum and the target's, 2 sums of
// their exponentials, too. tessera-bench --decompose times it with another number here.
#define EPILOGUE 2
