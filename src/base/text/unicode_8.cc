#include "base/text/unicode_8.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/text/unicode.h"

namespace quire {
namespace {

struct Range {
  char32_t first, last;
};

// The punctuation, nonspacing marks and formats of later versions (up to 17), ascending. A range also covers the
// characters of other classes between them.
constexpr Range kLater[] = {
    {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},     {0xA76, 0xA76},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
    {0x180F, 0x1886},   {0x1ABF, 0x1AFF},   {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x1DF6, 0x1DFB},
    {0x2E43, 0x2E5D},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
    {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF},
    {0x1123E, 0x11241}, {0x1133B, 0x1133B}, {0x113B8, 0x113E2}, {0x11438, 0x1145E}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x13455}, {0x1611E, 0x1612F}, {0x16D6D, 0x16D6F},
    {0x16E97, 0x16F4F}, {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E6FF}, {0x1E944, 0x1E95F}};

bool is_later(char32_t c) {
  const Range* const at = std::ranges::lower_bound(kLater, c, {}, &Range::last);
  return at != std::end(kLater) && at->first <= c;
}

}  // namespace

bool is_unicode_8_punctuation(char32_t c) {
  return (is_punctuation(c) && !is_later(c)) || c == 0x166D || c == 0x111C9;  // So and Mn since
}

bool is_unicode_8_accent(char32_t c) {
  const bool now = utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
  return (now && !is_later(c)) || c == 0x1734;  // Mc since
}

bool is_unicode_8_control(char32_t c) { return is_control(c) && !is_later(c); }

}  // namespace quire
