// quire quantize --report: what each tensor lost, as a page for a browser.
#pragma once

#include <string>

#include "quantize/allocation/allocation.h"
#include "quantize/quantize.h"

namespace quire {

struct ErrorPageTitle {
  std::string input, output, types;  // as the user knows them; types: the mix, or how they were chosen
};

// One HTML document that loads nothing and runs no script, in the colours that the reader prefers, light or dark. Names of
// files and tensors may be anything. plan: after write_quantized() with measure_errors. allocation: null if types were not
// chosen by measuring.
std::string error_page(const ErrorPageTitle& title, const QuantizePlan& plan, const Allocation* allocation);

}  // namespace quire
