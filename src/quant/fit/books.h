// The book of a panel format's codes.
#pragma once

#include "quant/block_type.h"
#include "quant/fit/code_book.h"
#include "quant/panel_format.h"

namespace quire {

inline IntegerBook integer_book(const PanelFormat& format) {
  const int levels = 1 << code_bits(format.codes);
  return {static_cast<float>(-format.zero), static_cast<float>(levels - 1 - format.zero)};
}

inline const TableBook& table_book(const PanelFormat& format) {
  static const TableBook iq4(kIq4Table), e2m1(kDoubledE2M1);
  return format.table == kIq4Table ? iq4 : e2m1;
}

}  // namespace quire
