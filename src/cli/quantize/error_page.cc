#include "cli/quantize/error_page.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "cli/figure/picture.h"
#include "quantize/allocation/tensor_groups.h"

namespace quire {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fbfbfa; --text: #1b1c1e; --quiet: #5b6068; --line: #d4d6da; --bar: #2a6fdb; --worst: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15171a; --text: #e8e9eb; --quiet: #a3a9b2; --line: #3a3f46; --bar: #6aa5ff; --worst: #ff8a80; }
}
body { margin: 0 auto; max-width: 1100px; padding: 1rem; background: var(--page); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p { color: var(--quiet); max-width: 70ch; overflow-wrap: anywhere; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .quiet { fill: var(--quiet); } svg line { stroke: var(--line); } svg rect { fill: var(--bar); } svg rect.worst { fill: var(--worst); }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, td.name { text-align: left; }
)";

class ErrorHtml {
 public:
  template <class... A>
  void add(fmt::format_string<A...> f, A&&... a) {
    fmt::format_to(std::back_inserter(text_), f, std::forward<A>(a)...);
    text_ += '\n';
  }
  std::string& text() { return text_; }

 private:
  std::string text_;
};

struct Bar {
  std::string label;  // below it; may be empty
  std::string about;  // shown when the pointer is on it
  double value = 0;
  bool is_worst = false;
};

constexpr double kNarrow = 340, kWide = 1040;

// Bars from left to right with heights from 0 to `most`.
void add_bars(ErrorHtml& page, double width, const std::string& title, const std::string& about,
              std::span<const Bar> bars, double most) {
  constexpr double kHeight = 150, kLeft = 8, kTop = 40, kBottom = 130;
  page.add(R"(<svg viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">)", width, kHeight, width,
           kHeight, title);
  page.add(R"(<text x="{}" y="14">{}</text><text class="quiet" x="{}" y="30">{}</text>)", kLeft, title, kLeft, about);
  page.add(R"(<line x1="{}" y1="{}" x2="{}" y2="{}"/>)", kLeft, kBottom, width, kBottom);
  const double step = (width - kLeft) / static_cast<double>(std::max<size_t>(1, bars.size()));
  for (size_t i = 0; i < bars.size(); ++i) {
    const double x = kLeft + static_cast<double>(i) * step,
                 height = most > 0 ? (kBottom - kTop) * std::clamp(bars[i].value / most, 0.0, 1.0) : 0;
    page.add(R"(<rect{} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>)",
             bars[i].is_worst ? R"( class="worst")" : "", x, kBottom - height, std::max(1.0, 0.8 * step), height,
             bars[i].about);
    if (bars[i].label.empty()) continue;
    const bool is_right = x > width / 2;  // its text must not leave the picture
    page.add(R"(<text class="quiet" x="{:.1f}" y="{}"{}>{}</text>)", is_right ? x + 0.8 * step : x, kBottom + 14,
             is_right ? R"( text-anchor="end")" : "", bars[i].label);
  }
  page.add("</svg>");
}

double bits_each_of(const TensorChange& change) {
  return 8 * static_cast<double>(change.bytes) / static_cast<double>(std::max<uint64_t>(1, change.elements));
}

std::string percent_text(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string megabytes_text(uint64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6); }

// Tensors of which anything was lost, the worst first.
std::vector<size_t> by_error(const QuantizePlan& plan) {
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.changes.size(); ++i) {
    if (plan.changes[i].error.value_or(0) > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return *plan.changes[i].error; });
  return order;
}

void add_tensor_table(ErrorHtml& page, const QuantizePlan& plan, std::span<const size_t> which) {
  page.add(R"(<div class="wide"><table><tr><th>tensor</th><th>from</th><th>to</th><th>bits</th><th>MB</th>)"
           "<th>relative RMSE</th></tr>");
  for (const size_t i : which) {
    const TensorChange& change = plan.changes[i];
    const std::string error = !change.error ? "-" : *change.error == 0 ? "exact" : percent_text(*change.error);
    page.add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.4g}</td><td>{}</td><td>{}</td></tr>", shown_text(change.name),
             shown_text(change.from), name(change.to), bits_each_of(change), megabytes_text(change.bytes), error);
  }
  page.add("</table></div>");
}

// A chart for each kind of tensor that layers have, all with one scale.
void add_layers(ErrorHtml& page, const QuantizePlan& plan, std::span<const size_t> worst) {
  constexpr size_t kMarked = 5;
  std::map<std::string, std::vector<size_t>, std::less<>> kinds;
  double most = 0;
  for (size_t i = 0; i < plan.changes.size(); ++i) {
    if (plan.file.tensors[i].layer < 0 || !plan.changes[i].error) continue;
    kinds[std::string(name_in_layer(plan.changes[i].name))].push_back(i);
    most = std::max(most, *plan.changes[i].error);
  }
  std::erase_if(kinds, [&](const auto& kind) {
    return std::ranges::all_of(kind.second, [&](size_t i) { return *plan.changes[i].error == 0; });
  });
  if (kinds.empty()) return;
  page.add("<h2>Error by layer</h2>");
  page.add(
      "<p>A bar for each layer, from the first to the last. All charts have the same scale, up to {}; the {} worst "
      "tensors of the file are marked.</p>",
      percent_text(most), std::min(kMarked, worst.size()));
  page.add(R"(<div class="charts">)");
  for (auto& [kind, tensors] : kinds) {
    std::ranges::stable_sort(tensors, {}, [&](size_t i) { return plan.file.tensors[i].layer; });
    std::vector<Bar> bars;
    double sum = 0;
    for (const size_t i : tensors) {
      const TensorChange& change = plan.changes[i];
      const bool is_end = i == tensors.front() || i == tensors.back();
      sum += *change.error;
      bars.push_back(
          {.label = is_end ? fmt::format("{}", plan.file.tensors[i].layer) : "",
           .about = fmt::format("{}: {}, {}", shown_text(change.name), name(change.to), percent_text(*change.error)),
           .value = *change.error,
           .is_worst = std::ranges::find(worst.first(std::min(kMarked, worst.size())), i) !=
                       worst.begin() + static_cast<ptrdiff_t>(std::min(kMarked, worst.size()))});
    }
    add_bars(page, kNarrow, shown_text(kind), "mean " + percent_text(sum / static_cast<double>(tensors.size())), bars,
             most);
  }
  page.add("</div>");
}

void add_types(ErrorHtml& page, const QuantizePlan& plan) {
  struct Use {
    size_t tensors = 0;
    uint64_t bytes = 0, elements = 0;
  };
  std::map<TensorType, Use> uses;
  uint64_t most = 0;
  for (const TensorChange& change : plan.changes) {
    Use& use = uses[change.to];
    ++use.tensors;
    use.bytes += change.bytes;
    use.elements += change.elements;
    most = std::max(most, use.bytes);
  }
  page.add("<h2>Types</h2>");
  std::vector<Bar> bars;
  for (const auto& [type, use] : uses)
    bars.push_back({std::string(name(type)),
                    fmt::format("{}: {} tensors, {} MB", name(type), use.tensors, megabytes_text(use.bytes)),
                    static_cast<double>(use.bytes), false});
  add_bars(page, kNarrow, "Bytes by type", fmt::format("up to {} MB", megabytes_text(most)), bars,
           static_cast<double>(most));
  page.add("<table><tr><th>type</th><th>tensors</th><th>weights</th><th>MB</th><th>bits</th></tr>");
  for (const auto& [type, use] : uses)
    page.add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.4g}</td></tr>", name(type), use.tensors,
             use.elements, megabytes_text(use.bytes),
             8 * static_cast<double>(use.bytes) / static_cast<double>(std::max<uint64_t>(1, use.elements)));
  page.add("</table>");
}

void add_allocation(ErrorHtml& page, const Allocation& allocation) {
  double most = 0;
  std::vector<Bar> bars;
  for (const GroupAllocation& group : allocation.groups) most = std::max(most, group.choice().divergence);
  for (const GroupAllocation& group : allocation.groups) {
    const TypeChoice& choice = group.choice();
    bars.push_back({"", fmt::format("{}: {}, KL {:.6f}", shown_text(group.name), name(choice.type), choice.divergence),
                    choice.divergence, false});
  }
  page.add("<h2>Divergence by group</h2>");
  page.add(
      "<p>The mean KL divergence of the model's output, in nats a token, if only this group of matrices is "
      "quantized. The types of the file were chosen so that the sum, {:.4f}, is smallest.</p>",
      allocation.divergence());
  add_bars(page, kWide, "KL divergence", fmt::format("up to {:.5f}", most), bars, most);
}

}  // namespace

std::string error_page(const ErrorPageTitle& title, const QuantizePlan& plan, const Allocation* allocation) {
  constexpr size_t kWorstShown = 12;
  const std::vector<size_t> worst = by_error(plan);
  std::vector<size_t> all(plan.changes.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  ErrorHtml page;
  page.add("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
  page.add(R"(<meta name="viewport" content="width=device-width, initial-scale=1">)");
  page.add("<title>{}</title><style>{}</style></head><body>", shown_text(title.output), kStyle);
  page.add("<h1>{}</h1>", shown_text(title.output));
  page.add(
      "<p>Made of {} with {}: {} tensors, {} MB, {:.3f} bits a weight. {} tensors lost something; their relative error "
      "is the root of the squared error as a share of the squared weights. It is the error of the weights, not of the "
      "model's output: error feedback and importance raise it and make the output better. "
      "<code>quire compare</code> measures the output.</p>",
      shown_text(title.input), shown_text(title.types), plan.changes.size(), megabytes_text(plan.bytes()),
      plan.bits_per_weight(), worst.size());
  for (const std::string& warning : plan.warnings) page.add("<p>Warning: {}</p>", shown_text(warning));
  if (!worst.empty()) {
    page.add("<h2>Worst tensors</h2>");
    add_tensor_table(page, plan, std::span(worst).first(std::min(kWorstShown, worst.size())));
  }
  add_layers(page, plan, worst);
  if (allocation) add_allocation(page, *allocation);
  add_types(page, plan);
  page.add("<h2>All tensors</h2>");
  add_tensor_table(page, plan, all);
  page.add("</body></html>");
  return std::move(page.text());
}

}  // namespace quire
