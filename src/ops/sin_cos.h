// Sine and cosine for RoPE, with the same bits whatever the C library.
#pragma once

namespace quire {

struct SinCos {
  double sin, cos;
};

// angle: a float value. Within 2 ulp of double if |angle| < 2^27, and so the correctly rounded float, once rounded, for
// all but about one angle in 2^27. Larger angles, which no model has, use the C library.
SinCos sin_cos(double angle);

}  // namespace quire
