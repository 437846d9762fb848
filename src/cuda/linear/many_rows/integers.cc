#include "cuda/linear/many_rows/launch.inc.h"

namespace quire::cuda {

template void launch_many_rows<Codes::kU4>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kU5>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kI8>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
