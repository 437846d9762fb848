#include "cli/figure/picture.h"

#include <array>

#include "base/text/escape_html.h"
#include "cli/chat/output.h"

namespace quire {
namespace {

// Of middle lightness: at least 3:1 against white and against the black of dark themes.
constexpr std::array<std::string_view, kSeriesColours> kSeriesPalette{"#3b82c4", "#d9822b", "#4b9663",
                                                                      "#b05fa3", "#9a8136", "#7d7d85"};

}  // namespace

std::string shown_text(std::string_view text) { return escape_html(escape_controls(text, true)); }

SvgPicture::SvgPicture(double width, double height, std::string_view title, std::string_view css) {
  add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img">)", width,
      height);
  add("<title>{}</title>", shown_text(title));
  add("<style>");
  add("text {{ font: 12px system-ui, sans-serif; fill: #777 }} .title {{ font-size: 15px }}");
  add(".grid {{ stroke: #8884; stroke-width: 1 }} .frame {{ fill: none; stroke: #888; stroke-width: 2 }}");
  for (size_t i = 0; i < kSeriesPalette.size(); ++i)
    add(".s{0} {{ fill: {1} }} .l{0} {{ fill: none; stroke: {1}; stroke-width: 2 }}", i, kSeriesPalette[i]);
  if (!css.empty()) add("{}", css);
  add("</style>");
}

void SvgPicture::label(double x, double y, std::string_view anchor, std::string_view text) {
  add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, shown_text(text));
}

void SvgPicture::line(double x1, double y1, double x2, double y2, std::string_view attributes) {
  add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)", x1, y1, x2, y2, attributes);
}

std::string SvgPicture::finish() && {
  text_ += "</svg>\n";
  return std::move(text_);
}

}  // namespace quire
