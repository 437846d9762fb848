// Functions whose results are defined to the bit. Those of the C library differ between machines.
#pragma once

namespace quire {

// x: positive, normal. Relative error below 1e-15.
double log2_exact(double x);

// 2^x with relative error below 1e-15; x below -1000 counts as -1000, x above 1000 as 1000.
double exp2_exact(double x);

// base^exponent; base >= 0, exponent >= 0; 0^0 is 1.
double power_exact(double base, double exponent);

}  // namespace quire
