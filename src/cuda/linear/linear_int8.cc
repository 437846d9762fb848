#include "cuda/linear/linear_int8.h"

#include <cassert>

namespace quire::cuda {

void launch_int8(Stream& stream, Codes codes, const LinearLaunch& l) {
  switch (codes) {
    case Codes::kU2:
      return launch_int8<Codes::kU2>(stream, l);
    case Codes::kU3:
      return launch_int8<Codes::kU3>(stream, l);
    case Codes::kU4:
      return launch_int8<Codes::kU4>(stream, l);
    case Codes::kU5:
      return launch_int8<Codes::kU5>(stream, l);
    case Codes::kU6:
      return launch_int8<Codes::kU6>(stream, l);
    case Codes::kI8:
      return launch_int8<Codes::kI8>(stream, l);
    case Codes::kTable4:
      return launch_int8<Codes::kTable4>(stream, l);
    default:
      assert(false);
  }
}

}  // namespace quire::cuda
