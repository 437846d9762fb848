#include "cli/lab/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/chat/output.h"

namespace quire {
namespace {

constexpr std::string_view kIndexTitle = "# The lab\n";

// Text from the command line in Markdown: in a cell, a sentence, or a line of a code block.
std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : escape_controls(text, true)) {
    if (c == '|' || c == '<' || c == '`' || c == '*') out += '\\';
    out += c;
  }
  return out;
}

std::string_view claim_words(Claim claim) {
  switch (claim) {
    case Claim::kAbout:
      return "about ";
    case Claim::kAtMost:
      return "at most ";
    case Claim::kAtLeast:
      return "at least ";
    case Claim::kEqual:
    case Claim::kNone:
      break;
  }
  return "";
}

std::string with_unit(double value, const std::string& unit) {
  return lab_number_text(value) + (unit.empty() ? "" : " " + unit);
}

std::string number_row(const LabNumber& n) {
  const auto held = holds(n);
  const std::string foretold = held ? std::string(claim_words(n.claim)) + with_unit(n.foretold, n.unit) : "";
  std::string verdict = !held ? "" : *held ? "yes" : "**no**";
  if (held && n.factor >= 1.01) verdict += fmt::format(" (a factor of {:.3g} is allowed)", n.factor);
  return fmt::format("| {} | {} | {} | {} | {} | {} |\n", n.what, with_unit(n.value, n.unit),
                     n.counted ? "counted" : "measured", foretold, verdict, n.theory);
}

std::string index_row(const Experiment& e, std::string_view summary) {
  return fmt::format("| [{}]({}.md) | {} |\n", e.title, e.name, summary);
}

// The row that an index has for an experiment; empty: none.
std::string_view row_of(const Experiment& e, std::string_view index) {
  const std::string begin = fmt::format("| [{}]({}.md) |", e.title, e.name);
  const size_t at = index.find(begin);
  if (at == index.npos) return {};
  const size_t end = index.find('\n', at);
  return index.substr(at, end == index.npos ? end : end + 1 - at);
}

}  // namespace

std::vector<std::string> figure_files(const Experiment& e, const LabResult& result) {
  if (result.figures.size() == 1) return {fmt::format("{}.svg", e.name)};
  std::vector<std::string> files;
  for (size_t i = 1; i <= result.figures.size(); ++i) files.push_back(fmt::format("{}-{}.svg", e.name, i));
  return files;
}

std::string experiment_page(const Experiment& e, const LabResult& r, const LabMachine& m) {
  std::string page = fmt::format("# {}\n\n**{}**\n\n{}\n\n{} [More](../{}.md).\n\n", e.title, e.question, r.summary,
                                 e.technique, e.page);
  const std::vector<std::string> files = figure_files(e, r);
  for (size_t i = 0; i < files.size(); ++i)
    page += fmt::format("![{0}]({1})\n\n*{0}*\n\n", r.figures[i].caption, files[i]);
  page += "## What was run\n\n";
  for (const std::string& sentence : r.setup) page += sentence + "\n";
  page += fmt::format(
      "\nThis page is the output of `quire lab {}`{}. Times are medians; the variants took turns. To try it by "
      "hand:\n\n"
      "```\n{}\n```\n\n",
      e.name, m.quick ? " with `--quick`, which uses smaller sizes" : "", fmt::join(r.commands, "\n"));
  page +=
      "## Numbers\n\nCounts are the same in every run. Measured numbers change with the machine and what else it "
      "does.\n\n"
      "| what | result | | theory foretells | holds | why |\n|---|--:|---|--:|---|---|\n";
  for (const LabNumber& n : r.numbers) page += number_row(n);
  page +=
      fmt::format("\n## Machine\n\n{}, {} thread{}, kernels {}, model {}; quire {}, {}.\n", markdown_text(m.processor),
                  m.threads, m.threads == 1 ? "" : "s", m.kernels, markdown_text(m.model), m.version, m.date);
  return page;
}

std::string lab_index(const std::vector<LabSummary>& summaries, std::string_view earlier) {
  std::string page = fmt::format(
      "{}\nEach technique of Quire can be switched off. `quire lab` runs each against its absence, draws a figure, and "
      "compares the numbers with what theory foretells. `quire lab NAME` runs one of them, `quire lab --quick` all in "
      "a few minutes, on your machine and with your model (`-m`).\n\n| experiment | result |\n|---|---|\n",
      kIndexTitle);
  for (const Experiment* e : experiments()) {
    const auto now = std::ranges::find(summaries, e, &LabSummary::experiment);
    if (now != summaries.end())
      page += index_row(*e, now->text);
    else
      page += row_of(*e, earlier);
  }
  return page;
}

bool is_lab_index(std::string_view text) { return text.starts_with(kIndexTitle); }

nlohmann::ordered_json lab_json(const Experiment& e, const LabResult& r) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const LabNumber& n : r.numbers) {
    nlohmann::ordered_json number{{"what", n.what}, {"unit", n.unit}, {"value", n.value}, {"counted", n.counted}};
    if (const auto held = holds(n)) {
      number["foretold"] = n.foretold;
      number["holds"] = *held;
    }
    numbers.push_back(std::move(number));
  }
  return {{"name", e.name},         {"question", e.question},        {"summary", r.summary},
          {"commands", r.commands}, {"figures", figure_files(e, r)}, {"numbers", std::move(numbers)}};
}

nlohmann::ordered_json lab_json(const LabMachine& m) {
  return {{"processor", m.processor}, {"threads", m.threads}, {"kernels", m.kernels}, {"model", m.model},
          {"version", m.version},     {"date", m.date},       {"quick", m.quick}};
}

}  // namespace quire
