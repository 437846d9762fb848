#include "cuda/linear/int8/launch.inc.h"

namespace quire::cuda {

template void launch_int8<Codes::kI8>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
