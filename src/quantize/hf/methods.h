// The methods of hf_methods(), each in its own file.
#pragma once

#include "quantize/hf/method.h"

namespace quire {

extern const HfMethod kGptqMethod, kAwqMethod, kSmoothQuantMethod, kLlmInt8Method, kNf4Method, kFp4Method, kFp8Method,
    kFp8BlockMethod, kMxfp4Method, kNvfp4Method, kRtnInt4Method, kRtnInt8Method;

}  // namespace quire
