// SVG figures: the elements that the pictures of `quire plan`, the pages of `quire quantize` and the charts of `quire lab` are
// made of.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

// Text from files, models or people, fit for an element or a quoted attribute of XML: &, <, > and quotes as entities, and
// what XML cannot have (control characters, ill-formed UTF-8) spelled out.
std::string shown_text(std::string_view text);

// An SVG document of its own, whose colours can be read on light and dark backgrounds.
class SvgPicture {
 public:
  // Begins the document. `css`: rules besides those of text, .title, .grid, .frame and the series' colours .s0 to .s5 (for
  // what is filled) and .l0 to .l5 (for lines).
  SvgPicture(double width, double height, std::string_view title, std::string_view css = {});

  // A line of the document. The arguments are not escaped.
  template <class... A>
  void add(fmt::format_string<A...> f, A&&... a) {
    fmt::format_to(std::back_inserter(text_), f, std::forward<A>(a)...);
    text_ += '\n';
  }
  // Text at a point; anchor: start, middle or end. Escapes the text.
  void label(double x, double y, std::string_view anchor, std::string_view text);
  // attributes: such as class="grid"
  void line(double x1, double y1, double x2, double y2, std::string_view attributes);

  // Ends the document and gives it away.
  std::string finish() &&;

 private:
  std::string text_;
};

inline constexpr size_t kSeriesColours = 6;

}  // namespace quire
