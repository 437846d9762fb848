#include "cli/plan/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "cli/figure/axis.h"
#include "cli/figure/picture.h"
#include "cli/output_file.h"
#include "engine/dtype_names.h"

namespace quire {
namespace {

constexpr double kLeft = 80, kRight = 870, kTop = 70, kBottom = 400;
constexpr double kBarTop = 470, kBarHeight = 36;

void draw_roofline(const PlanReport& r, SvgPicture& svg) {
  const MachineRates& rates = r.hardware.rates;
  ChartAxis intensity(ChartAxis::Scale::kLog), speed(ChartAxis::Scale::kLog);
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
  speed.cover(rates.bandwidth * intensity.low());
  speed.round_out();
  const auto x = [&](double value) { return intensity.at(value, kLeft, kRight); };
  const auto y = [&](double value) { return speed.at(value, kBottom, kTop); };
  for (const double v : intensity.ticks()) {
    svg.line(x(v), kTop, x(v), kBottom, R"(class="grid")");
    svg.label(x(v), kBottom + 18, "middle", fmt::format("{:g}", v));
  }
  for (const double v : speed.ticks()) {
    svg.line(kLeft, y(v), kRight, y(v), R"(class="grid")");
    svg.label(kLeft - 8, y(v) + 4, "end", si_text(v));
  }
  svg.label((kLeft + kRight) / 2, kBottom + 38, "middle", "operations for each byte that is read");
  svg.label(kLeft - 60, kTop - 14, "start", "operations a second");
  for (const Activations unit : kUnits) {
    const double rate = 2 * rates.multiply_adds[static_cast<size_t>(unit)];
    if (rate == 0) continue;
    const double ridge = std::min(rate / rates.bandwidth, intensity.high());
    svg.add(R"(<polyline class="roof" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)", x(intensity.low()),
            y(rates.bandwidth * intensity.low()), x(ridge), y(std::min(rate, rates.bandwidth * ridge)),
            x(intensity.high()), y(rate));
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
  const std::string title = fmt::format("{} on {}", r.model.name, r.hardware.title);
  SvgPicture svg(900, 560, title,
                 ".roof { fill: none; stroke: #888; stroke-width: 2 } .decode, .weights { fill: #3b82c4 } "
                 ".prefill, .cache { fill: #d9822b } .activations { fill: #5a9e6f }");
  svg.add(R"(<text class="title" x="{}" y="26">{}</text>)", kLeft, shown_text(title));
  draw_roofline(r, svg);
  draw_memory(r, svg);
  return std::move(svg).finish();
}

void write_svg(const std::string& file, const std::string& svg, bool force) {
  check_output(file, "--svg", force);
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << svg;
  out.close();
  if (!out) throw no_resource("--svg {} cannot be written", file);
}

}  // namespace quire
