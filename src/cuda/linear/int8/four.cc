#include "cuda/linear/int8/launch.inc.h"

namespace quire::cuda {

template void launch_int8<Codes::kU4>(Stream&, const LinearLaunch&);
template void launch_int8<Codes::kTable4>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
