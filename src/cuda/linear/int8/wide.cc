#include "cuda/linear/int8/launch.inc.h"

namespace quire::cuda {

template void launch_int8<Codes::kU5>(Stream&, const LinearLaunch&);
template void launch_int8<Codes::kU6>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
