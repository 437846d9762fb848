// The nonlinear functions between linears. kernels/lanes.h defines their bits.
#pragma once

#include <cstdint>

namespace quire {

enum class Nonlinearity : uint8_t {
  kNone,      // x
  kSilu,      // x / (1 + exp(-x))
  kGelu,      // x/2 (1 + erf(x / sqrt(2)))
  kGeluTanh,  // x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kRelu,      // max(0, x)
  kRelu2,     // max(0, x)^2
  kSigmoid,   // 1 / (1 + exp(-x))
  // Only of a gate x and a value u (gpt-oss): (clamp(u, -limit, limit) + 1) g / (1 + exp(-alpha g)), g = min(x, limit)
  kClampedSwiglu,
};

}  // namespace quire
