// Figures: axes, escaping, and what charts show of their data.
#include "cli/figure/charts.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "cli/figure/axis.h"
#include "cli/figure/picture.h"

namespace quire {
namespace {

size_t count_of(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

TEST(ChartAxis, RoundsOutToWholeTicks) {
  ChartAxis axis(ChartAxis::Scale::kLinear);
  axis.cover(0);
  axis.cover(87);
  axis.round_out();
  EXPECT_EQ(axis.ticks(), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_DOUBLE_EQ(axis.at(50, 100, 200), 150);
  EXPECT_DOUBLE_EQ(axis.at(-5, 100, 200), 100);  // outside: at the end
  EXPECT_DOUBLE_EQ(axis.at(1000, 100, 200), 200);
}

TEST(ChartAxis, LogarithmicAxesEndAtPowersOfTen) {
  ChartAxis axis(ChartAxis::Scale::kLog);
  for (const double value : {0.0, -3.0, 20.0, 5000.0, std::numeric_limits<double>::infinity()}) axis.cover(value);
  axis.round_out();
  ASSERT_EQ(axis.ticks().size(), 4u);
  EXPECT_DOUBLE_EQ(axis.ticks()[0], 10);
  EXPECT_DOUBLE_EQ(axis.ticks()[3], 10000);
  EXPECT_DOUBLE_EQ(axis.at(1000, 0, 3), 2);
  EXPECT_DOUBLE_EQ(axis.at(0, 0, 3), 0);
}

TEST(ChartAxis, ThatCoversNothingOrOneValueHasALength) {
  for (const auto scale : {ChartAxis::Scale::kLinear, ChartAxis::Scale::kLog}) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), 10.0}) {
      ChartAxis axis(scale);
      axis.cover(value);
      axis.round_out();
      EXPECT_LT(axis.low(), axis.high());
      EXPECT_GE(axis.ticks().size(), 2u);
    }
  }
}

TEST(SiText, HasThreeDigitsAndAPrefix) {
  EXPECT_EQ(si_text(0), "0 ");
  EXPECT_EQ(si_text(1000), "1 k");
  EXPECT_EQ(si_text(999.9), "1 k");
  EXPECT_EQ(si_text(1.25e9), "1.25 G");
  EXPECT_EQ(si_text(0.002), "0.002 ");
  EXPECT_EQ(si_text(-5e6), "-5 M");
  EXPECT_EQ(si_text(1e-12), "1e-12 ");
}

TEST(SvgPicture, EscapesTextAndWhatXmlCannotHave) {
  SvgPicture svg(10, 20, "a <b> & \"c\"\x01");
  svg.label(1, 2, "end", "<script>\xff");
  const std::string text = std::move(svg).finish();
  EXPECT_TRUE(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"10\" height=\"20\""));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  EXPECT_NE(text.find("<title>a &lt;b&gt; &amp; &#34;c&#34;\\x01</title>"), text.npos);
  EXPECT_NE(text.find("&lt;script&gt;\\xff</text>"), text.npos);
  EXPECT_EQ(text.find("<script>"), text.npos);
}

TEST(LineChart, DrawsTheoryDashedInTheColourOfItsMeasurement) {
  const std::string svg = line_chart_svg(
      {.title = "t",
       .x_label = "x",
       .y_label = "y",
       .lines = {
           {"first", {{0, 1}, {10, 2}}}, {"its theory", {{0, 1}, {10, 3}}, true}, {"second", {{0, 0}, {10, 4}}}}});
  EXPECT_EQ(count_of(svg, "<polyline"), 3u);
  EXPECT_EQ(count_of(svg, "<polyline class=\"l0\" stroke-dasharray"), 1u);
  EXPECT_EQ(count_of(svg, "<polyline class=\"l1\" points"), 1u);
  EXPECT_EQ(count_of(svg, "<circle"), 4u);  // theory has no marks
  EXPECT_NE(svg.find("its theory</text>"), svg.npos);
}

TEST(BarChart, HasHeightsInProportionToItsValues) {
  const std::string svg = bar_chart_svg(
      {.title = "t", .y_label = "y", .names = {"on", "off"}, .groups = {{"a", {5, 10}}, {"b", {0, 2.5}}}});
  std::vector<double> heights;
  const std::regex bar(R"re(height="([0-9.]+)"><title>)re");
  for (std::sregex_iterator at(svg.begin(), svg.end(), bar), end; at != end; ++at)
    heights.push_back(std::stod((*at)[1]));
  ASSERT_EQ(heights.size(), 4u);
  EXPECT_NEAR(heights[1], 2 * heights[0], 0.1);
  EXPECT_EQ(heights[2], 0);
  EXPECT_NEAR(heights[3], heights[0] / 2, 0.1);
  EXPECT_NE(svg.find("<title>a, off: 10</title>"), svg.npos);
}

TEST(SlotChart, DrawsEachUseAndHatchesTheRest) {
  const std::string svg =
      slot_chart_svg({.title = "t",
                      .x_label = "steps",
                      .slots = 2,
                      .panels = {{"static", {{0, 0, 0, 4}, {1, 1, 0, 10}}}, {"other", {{0, 2, 0, 6}}}}});
  EXPECT_EQ(count_of(svg, "<rect class=\"idle\""), 2u);
  EXPECT_EQ(count_of(svg, "<rect class=\"s"), 3u);
  const std::regex use(R"re(<rect class="s0" x="[0-9.]+" y="[0-9.]+" width="([0-9.]+)")re");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(svg, found, use));
  EXPECT_NEAR(std::stod(found[1]), 4 * 66.0 - 1, 0.2);  // 660 pixels for 10 steps
}

}  // namespace
}  // namespace quire
