// The page of quire quantize --report.
#include "cli/quantize/error_page.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

void add_tensor(QuantizePlan& plan, const std::string& name, int layer, TensorType type, std::optional<double> error) {
  plan.file.tensors.push_back({.name = name, .type = type, .shape = {4, 256}, .parts = {}, .layer = layer});
  plan.changes.push_back({.name = name,
                          .from = "F16",
                          .to = type,
                          .elements = 1024,
                          .bytes = tensor_bytes(type, std::vector<uint64_t>{4, 256}).value(),
                          .error = error});
}

QuantizePlan some_plan() {
  QuantizePlan plan;
  for (int layer = 0; layer < 3; ++layer) {
    add_tensor(plan, "blk." + std::to_string(layer) + ".ffn_down.weight", layer, TensorType::Q4_K, 0.05 + layer * 0.01);
    add_tensor(plan, "blk." + std::to_string(layer) + ".attn_norm.weight", -1, TensorType::F32, 0);
  }
  add_tensor(plan, "token_embd.weight", -1, TensorType::Q6_K, 0.0123);
  plan.warnings.push_back("a <b>warning</b>");
  return plan;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

TEST(ErrorPage, ShowsAllTensorsAndTheWorstFirst) {
  const std::string page = error_page({"in", "out", "Q4_K_M"}, some_plan(), nullptr);
  EXPECT_EQ(count(page, "<td>blk.0.attn_norm.weight</td>"), 1u);  // lost nothing, so it is in the last table only
  EXPECT_EQ(count(page, "<td>blk.2.ffn_down.weight</td>"), 2u);
  const size_t worst = page.find("Worst tensors");
  ASSERT_NE(worst, page.npos);
  EXPECT_LT(page.find("blk.2.ffn_down.weight", worst), page.find("blk.1.ffn_down.weight", worst));
  EXPECT_LT(page.find("blk.0.ffn_down.weight", worst), page.find("token_embd.weight", worst));
  EXPECT_NE(page.find("<td>7 %</td>"), page.npos);
  EXPECT_NE(page.find("<td>1.23 %</td>"), page.npos);
  EXPECT_NE(page.find("<td>exact</td>"), page.npos);
  EXPECT_NE(page.find("<td>4.5</td>"), page.npos);
  EXPECT_NE(page.find("mean 6 %"), page.npos);
}

TEST(ErrorPage, LoadsNothingAndFollowsTheReadersColours) {
  const std::string page = error_page({"in", "out", "Q4_K_M"}, some_plan(), nullptr);
  for (const char* loads : {"<script", "src=", "href=", "url(", "@import", "http"})
    EXPECT_EQ(count(page, loads), 0u) << loads;
  EXPECT_EQ(count(page, "prefers-color-scheme: dark"), 1u);
  EXPECT_EQ(count(page, "<svg"), 2u);
  EXPECT_EQ(count(page, "</svg>"), 2u);
  EXPECT_EQ(count(page, "<title>blk.1.ffn_down.weight: Q4_K, 6 %</title>"), 1u);
}

TEST(ErrorPage, EscapesWhatFilesSay) {
  const std::string bad = "</title><script>alert(1)</script>\"'&\n\x01\xff";
  QuantizePlan plan = some_plan();
  add_tensor(plan, "blk.0." + bad, 0, TensorType::Q4_K, 0.5);
  plan.changes.back().from = bad;
  plan.warnings.push_back(bad);
  Allocation allocation;
  allocation.groups.push_back({.name = bad, .tensors = {bad}, .elements = 1, .choices = {{.type = TensorType::Q4_K}}});
  const std::string page = error_page({bad, bad, bad}, plan, &allocation);
  EXPECT_EQ(count(page, "<script"), 0u);
  EXPECT_EQ(count(page, "<b>"), 0u);
  EXPECT_EQ(count(page, "\x01"), 0u);
  EXPECT_EQ(count(page, "\xff"), 0u);
  EXPECT_EQ(count(page, "\"'&"), 0u);
  EXPECT_EQ(count(page, "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;\\n\\x01\\xff"), 13u);
}

TEST(ErrorPage, IsWholeWithoutTensors) {
  const std::string page = error_page({"in", "out", "F32"}, {}, nullptr);
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.ends_with("</body></html>\n"));
  EXPECT_EQ(count(page, "nan"), 0u);
  EXPECT_EQ(count(page, "inf"), 0u);
}

}  // namespace
}  // namespace quire
