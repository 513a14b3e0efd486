// SPDX-License-Identifier: Apache-2.0
// The order of a launch's groups, by bands of PRODUCT_BAND panels, which take turns first: groups
// that run at once then share what they read of both operands.
#define PRODUCT_ORDER 1
ALWAYS_INLINE int product_in_band(void) {
  return (int)(get_group_id(1) * get_num_groups(0) + get_group_id(0));
}
ALWAYS_INLINE int product_band(void) {  // its first panel, in groups' shares
  return product_in_band() / (PRODUCT_BAND * (int)get_num_groups(0)) * PRODUCT_BAND;
}
ALWAYS_INLINE int product_band_size(void) {
  return min((int)get_num_groups(1) - product_band(), PRODUCT_BAND);
}
ALWAYS_INLINE int product_group(void) {
  return product_in_band() % (PRODUCT_BAND * (int)get_num_groups(0)) / product_band_size();
}
ALWAYS_INLINE int product_first_panel(int panels_per_group) {
  const int within = product_in_band() % (PRODUCT_BAND * (int)get_num_groups(0));
  return (product_band() + within % product_band_size()) * panels_per_group;
}
