#include "cli/plan/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/text/escape_html.h"
#include "cli/chat/output.h"
#include "engine/dtype_names.h"

namespace quire {
namespace {

// Ill-formed UTF-8 and control characters are no XML.
std::string shown_name(const std::string& name) {
  std::string text = escape_controls(name, true);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return escape_html(text);
}

constexpr double kLeft = 80, kRight = 870, kTop = 70, kBottom = 400;
constexpr double kBarTop = 470, kBarHeight = 36;

// A decimal axis that covers all values that it was shown.
struct LogAxis {
  double low = 1e300, high = 0;

  void cover(double value) {
    if (!(value > 0)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void round_out() {
    low = std::pow(10, std::floor(std::log10(low)));
    high = std::pow(10, std::ceil(std::log10(high)));
    if (high <= low) high = 10 * low;
  }
  double at(double value, double begin, double end) const {
    const double part = (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
    return begin + std::clamp(part, 0.0, 1.0) * (end - begin);
  }
};

std::string power_text(double value) {
  constexpr std::array kPrefixes{"", "k", "M", "G", "T", "P", "E"};
  size_t i = 0;
  while (value >= 1000 && i + 1 < kPrefixes.size()) {
    value /= 1000;
    ++i;
  }
  return fmt::format("{:g} {}", value, kPrefixes[i]);
}

class SvgPicture {
 public:
  template <class... A>
  void add(fmt::format_string<A...> f, A&&... a) {
    fmt::format_to(std::back_inserter(text_), f, std::forward<A>(a)...);
    text_ += '\n';
  }
  void label(double x, double y, const char* anchor, const std::string& text) {
    add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, text);
  }
  void line(double x1, double y1, double x2, double y2, const char* style) {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)", x1, y1, x2, y2, style);
  }
  std::string text_;
};

void draw_roofline(const PlanReport& r, SvgPicture& svg) {
  const MachineRates& rates = r.hardware.rates;
  LogAxis intensity, speed;
  intensity.cover(1);
  for (const PlannedStep& s : r.plan.steps) {
    intensity.cover(s.intensity());
    speed.cover(2 * s.work.total_multiply_adds() / s.seconds());
  }
  double peak = 0;
  for (const double rate : rates.multiply_adds) {
    if (rate == 0) continue;
    peak = std::max(peak, 2 * rate);
    intensity.cover(4 * rate / rates.bandwidth);  // right of the ridge
  }
  speed.cover(peak);
  intensity.round_out();
  speed.cover(rates.bandwidth * intensity.low);
  speed.round_out();
  const auto x = [&](double value) { return intensity.at(value, kLeft, kRight); };
  const auto y = [&](double value) { return speed.at(value, kBottom, kTop); };
  for (double v = intensity.low; v <= intensity.high * 1.01; v *= 10) {
    svg.line(x(v), kTop, x(v), kBottom, R"(class="grid")");
    svg.label(x(v), kBottom + 18, "middle", fmt::format("{:g}", v));
  }
  for (double v = speed.low; v <= speed.high * 1.01; v *= 10) {
    svg.line(kLeft, y(v), kRight, y(v), R"(class="grid")");
    svg.label(kLeft - 8, y(v) + 4, "end", power_text(v));
  }
  svg.label((kLeft + kRight) / 2, kBottom + 38, "middle", "operations for each byte that is read");
  svg.label(kLeft - 60, kTop - 14, "start", "operations a second");
  for (const Activations unit : {Activations::kF32, Activations::kBf16, Activations::kInt8}) {
    const double rate = 2 * rates.multiply_adds[static_cast<size_t>(unit)];
    if (rate == 0) continue;
    const double ridge = std::min(rate / rates.bandwidth, intensity.high);
    svg.add(R"(<polyline class="roof" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)", x(intensity.low),
            y(rates.bandwidth * intensity.low), x(ridge), y(std::min(rate, rates.bandwidth * ridge)), x(intensity.high),
            y(rate));
    svg.label(kRight, y(rate) - 5, "end", fmt::format("{}", name(unit)));
  }
  for (const PlannedStep& s : r.plan.steps) {
    const double px = x(s.intensity()), py = y(2 * s.work.total_multiply_adds() / s.seconds());
    svg.add(R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="5"/>)", s.what, px, py);
    svg.label(px + 9, py + 14, "start",
              s.what == "decode" ? fmt::format("decode, {}", s.sequences) : fmt::format("prefill {}", s.tokens));
  }
}

void draw_memory(const PlanReport& r, SvgPicture& svg) {
  const PlannedMemory& m = r.plan.memory;
  const double all = std::max(m.total(), m.available), wide = kRight - kLeft;
  const std::pair<const char*, double> parts[] = {
      {"weights", m.weights}, {"cache", m.cache}, {"activations", m.activations}};
  double x = kLeft;
  svg.label(kLeft, kBarTop - 10, "start",
            fmt::format("memory: {:.1f} GB of {:.1f} GB", m.total() / 1e9, m.available / 1e9));
  for (const auto& [what, bytes] : parts) {
    const double width = wide * bytes / all;
    svg.add(R"(<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>)", what, x, kBarTop, width, kBarHeight);
    x += width;
  }
  const double end = kLeft + wide * m.available / all;
  svg.add(R"(<rect class="frame" x="{}" y="{}" width="{:.1f}" height="{}"/>)", kLeft, kBarTop, end - kLeft, kBarHeight);
  double at = kLeft;
  for (const auto& [what, bytes] : parts) {
    svg.add(R"(<rect class="{}" x="{:.1f}" y="{}" width="12" height="12"/>)", what, at, kBarTop + kBarHeight + 14);
    svg.label(at + 18, kBarTop + kBarHeight + 25, "start", fmt::format("{} {:.2f} GB", what, bytes / 1e9));
    at += 220;
  }
}

}  // namespace

std::string plan_svg(const PlanReport& r) {
  SvgPicture svg;
  svg.add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="900" height="560" viewBox="0 0 900 560">)");
  svg.add("<style>");
  svg.add("text {{ font: 12px system-ui, sans-serif; fill: #777 }} .title {{ font-size: 15px }}");
  svg.add(".grid {{ stroke: #8884; stroke-width: 1 }} .roof {{ fill: none; stroke: #888; stroke-width: 2 }}");
  svg.add(
      ".decode, .weights {{ fill: #3b82c4 }} .prefill, .cache {{ fill: #d9822b }} .activations {{ fill: #5a9e6f }}");
  svg.add(".frame {{ fill: none; stroke: #888; stroke-width: 2 }}");
  svg.add("</style>");
  svg.add(R"(<text class="title" x="{}" y="26">{} on {}</text>)", kLeft, shown_name(r.model.name),
          shown_name(r.hardware.title));
  draw_roofline(r, svg);
  draw_memory(r, svg);
  svg.add("</svg>");
  return svg.text_;
}

}  // namespace quire
