// Charts as SVG documents: lines, bars, and what occupies slots over time. Texts are escaped.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace quire {

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // by x
  bool theory = false;             // dashed, in the colour of the line before it
};

struct LineChart {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;  // false: from 0
  std::vector<ChartLine> lines;       // at most 12, of which at most 6 are not theory
};
std::string line_chart_svg(const LineChart& chart);

struct ChartBars {
  std::string label;           // below the group
  std::vector<double> values;  // one for each name of the chart
};

struct BarChart {
  std::string title, y_label;
  std::vector<std::string> names;  // of the bars in each group; at most 6
  bool log_y = false;              // false: from 0
  std::vector<ChartBars> groups;
};
std::string bar_chart_svg(const BarChart& chart);

// Somebody occupies a slot for some steps.
struct SlotUse {
  int slot = 0;            // from 0
  size_t user = 0;         // chooses the colour
  int begin = 0, end = 0;  // steps [begin, end)
};

struct SlotPanel {
  std::string name;
  std::vector<SlotUse> uses;
};

// Panels one below the other, with one time axis. Slots are rows; what nobody occupies is hatched up to the panel's end.
struct SlotChart {
  std::string title, x_label;
  int slots = 1;
  std::vector<SlotPanel> panels;
};
std::string slot_chart_svg(const SlotChart& chart);

}  // namespace quire
