#include "cuda/linear/many_rows/launch.inc.h"

namespace quire::cuda {

template void launch_many_rows<Codes::kU2>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kU3>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kU6>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
