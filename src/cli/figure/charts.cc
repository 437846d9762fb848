#include "cli/figure/charts.h"

#include <algorithm>
#include <cassert>

#include "cli/figure/axis.h"
#include "cli/figure/picture.h"

namespace quire {
namespace {

constexpr double kChartWidth = 760, kChartHeight = 380;
constexpr double kPlotLeft = 80, kPlotRight = 740, kPlotTop = 74, kPlotBottom = 320;
constexpr double kLegendY = 46;

ChartAxis::Scale axis_scale(bool is_log) { return is_log ? ChartAxis::Scale::kLog : ChartAxis::Scale::kLinear; }

void draw_chart_title(SvgPicture& svg, const std::string& title) {
  svg.add(R"(<text class="title" x="{}" y="24">{}</text>)", kPlotLeft, shown_text(title));
}

// The value axis with its grid, and the label above it.
void draw_value_axis(SvgPicture& svg, const ChartAxis& axis, const std::string& label) {
  for (const double tick : axis.ticks()) {
    const double y = axis.at(tick, kPlotBottom, kPlotTop);
    svg.line(kPlotLeft, y, kPlotRight, y, R"(class="grid")");
    svg.label(kPlotLeft - 8, y + 4, "end", si_text(tick));
  }
  svg.label(kPlotLeft - 70, kPlotTop - 12, "start", label);
}

// Names in a row. An approximate width is enough to keep them apart.
class ChartLegend {
 public:
  explicit ChartLegend(double y) : y_(y) {}

  void add(SvgPicture& svg, size_t colour, bool dashed, const std::string& name) {
    if (dashed)
      svg.add(R"(<line class="l{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke-dasharray="5 4"/>)", colour,
              x_, y_ - 4, x_ + 20, y_ - 4);
    else
      svg.add(R"(<rect class="s{}" x="{:.1f}" y="{:.1f}" width="12" height="12"/>)", colour, x_ + 4, y_ - 10);
    svg.label(x_ + 26, y_, "start", name);
    x_ += 44 + 6.6 * static_cast<double>(name.size());
  }

 private:
  double x_ = kPlotLeft, y_;
};

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  ChartAxis x(axis_scale(chart.log_x)), y(axis_scale(chart.log_y));
  if (!chart.log_x) x.cover(0);
  if (!chart.log_y) y.cover(0);
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& p : line.points) {
      x.cover(p.x);
      y.cover(p.y);
    }
  }
  x.round_out();
  y.round_out();
  SvgPicture svg(kChartWidth, kChartHeight, chart.title);
  draw_chart_title(svg, chart.title);
  draw_value_axis(svg, y, chart.y_label);
  for (const double tick : x.ticks()) {
    const double at = x.at(tick, kPlotLeft, kPlotRight);
    svg.line(at, kPlotTop, at, kPlotBottom, R"(class="grid")");
    svg.label(at, kPlotBottom + 18, "middle", si_text(tick));
  }
  svg.label((kPlotLeft + kPlotRight) / 2, kPlotBottom + 42, "middle", chart.x_label);
  ChartLegend legend(kLegendY);
  size_t drawn = 0;  // lines that are not theory
  for (const ChartLine& line : chart.lines) {
    const size_t colour = (line.theory ? std::max<size_t>(drawn, 1) - 1 : drawn++) % kSeriesColours;
    legend.add(svg, colour, line.theory, line.name);
    std::string points;
    for (const ChartPoint& p : line.points)
      points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x.at(p.x, kPlotLeft, kPlotRight),
                            y.at(p.y, kPlotBottom, kPlotTop));
    svg.add(R"(<polyline class="l{}"{} points="{}"/>)", colour, line.theory ? R"( stroke-dasharray="5 4")" : "",
            points);
    constexpr size_t kMostMarked = 24;  // more points are a curve
    if (line.theory || line.points.size() > kMostMarked) continue;
    for (const ChartPoint& p : line.points)
      svg.add(R"(<circle class="s{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)", colour, x.at(p.x, kPlotLeft, kPlotRight),
              y.at(p.y, kPlotBottom, kPlotTop));
  }
  return std::move(svg).finish();
}

std::string bar_chart_svg(const BarChart& chart) {
  ChartAxis y(axis_scale(chart.log_y));
  if (!chart.log_y) y.cover(0);
  for (const ChartBars& group : chart.groups) {
    assert(group.values.size() == chart.names.size());
    for (const double value : group.values) y.cover(value);
  }
  y.round_out();
  SvgPicture svg(kChartWidth, kChartHeight, chart.title);
  draw_chart_title(svg, chart.title);
  draw_value_axis(svg, y, chart.y_label);
  ChartLegend legend(kLegendY);
  for (size_t i = 0; i < chart.names.size(); ++i) legend.add(svg, i % kSeriesColours, false, chart.names[i]);
  const double step = (kPlotRight - kPlotLeft) / static_cast<double>(std::max<size_t>(1, chart.groups.size()));
  const double width = 0.8 * step / static_cast<double>(std::max<size_t>(1, chart.names.size()));
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    const ChartBars& group = chart.groups[g];
    const double left = kPlotLeft + (static_cast<double>(g) + 0.1) * step;
    for (size_t i = 0; i < group.values.size(); ++i) {
      const double top = y.at(group.values[i], kPlotBottom, kPlotTop);
      svg.add(R"(<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>)",
              i % kSeriesColours, left + static_cast<double>(i) * width, top, 0.92 * width, kPlotBottom - top,
              shown_text(fmt::format("{}, {}: {:.4g}", group.label, chart.names[i], group.values[i])));
    }
    svg.label(left + 0.4 * step, kPlotBottom + 18, "middle", group.label);
  }
  return std::move(svg).finish();
}

std::string slot_chart_svg(const SlotChart& chart) {
  constexpr double kRow = 16, kGap = 44;
  ChartAxis x(ChartAxis::Scale::kLinear);
  x.cover(0);
  for (const SlotPanel& panel : chart.panels) {
    for (const SlotUse& use : panel.uses) x.cover(use.end);
  }
  x.round_out();
  const double panel_height = kRow * chart.slots;
  const double bottom = kPlotTop + static_cast<double>(chart.panels.size()) * (panel_height + kGap) - kGap;
  SvgPicture svg(kChartWidth, bottom + 60, chart.title,
                 ".idle { fill: url(#idle) } .idle-line { stroke: #8886; stroke-width: 2 }");
  svg.add(
      R"svg(<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">)svg"
      R"(<line class="idle-line" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>)");
  draw_chart_title(svg, chart.title);
  const auto at = [&](int steps) { return x.at(steps, kPlotLeft, kPlotRight); };
  double top = kPlotTop;
  for (const SlotPanel& panel : chart.panels) {
    int end = 0;
    for (const SlotUse& use : panel.uses) end = std::max(end, use.end);
    svg.label(kPlotLeft, top - 10, "start", panel.name);
    svg.add(R"(<rect class="idle" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", kPlotLeft, top,
            at(end) - kPlotLeft, panel_height);
    for (const SlotUse& use : panel.uses)
      svg.add(R"(<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", use.user % kSeriesColours,
              at(use.begin) + 0.5, top + kRow * use.slot + 0.5, std::max(0.5, at(use.end) - at(use.begin) - 1),
              kRow - 1);
    top += panel_height + kGap;
  }
  for (const double tick : x.ticks()) {
    const double px = x.at(tick, kPlotLeft, kPlotRight);
    svg.line(px, kPlotTop, px, bottom, R"(class="grid")");
    svg.label(px, bottom + 18, "middle", si_text(tick));
  }
  svg.label((kPlotLeft + kPlotRight) / 2, bottom + 42, "middle", chart.x_label);
  return std::move(svg).finish();
}

}  // namespace quire
