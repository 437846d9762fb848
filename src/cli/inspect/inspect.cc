#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iterator>
#include <limits>

#include "cli/chat/output.h"
#include "cli/commands.h"
#include "cli/inspect/report.h"
#include "cli/memory/memory_table.h"
#include "model/registry.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

struct InspectOptions {
  std::string model;
  bool tensors = false, metadata = false, json = false;
};

// Strings may come from the file. This escapes control characters and line ends, so that none reaches the terminal.
std::string shown(const ordered_json& value) {
  return escape_controls(
      value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true, ordered_json::error_handler_t::replace),
      true);
}

std::string cut(const std::string& text, size_t longest) {
  if (text.size() <= longest) return text;
  size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // keep characters whole
  return text.substr(0, end) + "...";
}

std::string bytes(const ordered_json& value) {
  const auto n = value.get<double>();
  if (n < 1e3) return fmt::format("{:.0f} B", n);
  if (n < 1e6) return fmt::format("{:.1f} kB", n / 1e3);
  return n < 1e9 ? fmt::format("{:.1f} MB", n / 1e6) : fmt::format("{:.2f} GB", n / 1e9);
}

std::string count(const ordered_json& value) {
  const auto n = value.get<double>();
  return n < 1e6   ? fmt::format("{:.0f}", n)
         : n < 1e9 ? fmt::format("{:.1f} M", n / 1e6)
                   : fmt::format("{:.2f} B", n / 1e9);
}

class Page {
 public:
  void row(const std::string& label, const std::string& value) {
    fmt::format_to(std::back_inserter(text_), "{:<17} {}\n", label + ":", value);
  }
  void line(const std::string& value = {}) { text_ += value + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string token(const ordered_json& t) { return fmt::format("{} {}", t["id"].get<int>(), shown(t["text"])); }

void show_text(const ordered_json& report, Page& page) {
  const ordered_json& t = report["tokenizer"];
  if (t.is_null()) {
    page.row("tokenizer", "none");
  } else {
    std::string line = t.contains("kind") ? shown(t["kind"]) : "";
    if (t.contains("pre")) line += fmt::format(" ({})", shown(t["pre"]));
    if (t.contains("vocab_size")) line += fmt::format(", {} tokens", t["vocab_size"].get<int>());
    if (t.contains("error")) line += ": " + shown(t["error"]);
    page.row("tokenizer", line);
    if (t.contains("warnings")) {
      for (const ordered_json& warning : t["warnings"]) page.row("warning", shown(warning));
    }
  }
  if (t.is_object() && t.contains("special_tokens")) {
    std::vector<std::string> special, ends;
    for (const auto& [what, id] : t["special_tokens"].items()) special.push_back(fmt::format("{} {}", what, token(id)));
    for (const ordered_json& id : t["end_of_generation"]) ends.push_back(token(id));
    page.row("special tokens", fmt::format("{}", fmt::join(special, ", ")));
    page.row("stop tokens", fmt::format("{}", fmt::join(ends, ", ")));
    page.row("BOS/EOS added", t["adds_bos"] && t["adds_eos"] ? "both"
                              : t["adds_bos"]                ? "BOS"
                              : t["adds_eos"]                ? "EOS"
                                                             : "none");
  }
  const ordered_json& chat = report["chat_template"];
  page.row("chat template", chat.is_null()           ? "none"
                            : chat.contains("error") ? shown(chat["error"])
                                                     : bytes(chat["bytes"]));
}

std::string pooled_from(const ordered_json& pooling) {
  const std::string tokens = pooling["tokens"];
  return tokens == "mean" ? "the mean of all tokens" : tokens == "last" ? "the last token" : "the first token";
}

void show_model(const ordered_json& report, Page& page) {
  page.row("name", cut(shown(report["name"]), 200));
  page.row("format", shown(report["format"]));
  if (report["architecture"] != "") page.row("architecture", cut(shown(report["architecture"]), 200));
  page.row("parameters", count(report["parameters"]));
  page.row("file size", bytes(report["file_bytes"]));
  if (report["quantization"].is_string()) page.row("quantization", shown(report["quantization"]));
  std::vector<std::string> types;
  for (const ordered_json& t : report["tensor_types"])
    types.push_back(fmt::format("{} {} ({})", t["tensors"].get<uint64_t>(), shown(t["type"]), bytes(t["bytes"])));
  page.row("tensors", types.empty() ? "none" : fmt::format("{}", fmt::join(types, ", ")));
  if (report["sizes"].is_object()) {
    for (const auto& [what, value] : report["sizes"].items()) page.row(what, shown(value));
  }
  if (const ordered_json& r = report["rope"]; r.is_object()) {
    std::string line = fmt::format("{} dimensions per head, theta {}, pairs: {}", r["dim"].get<int>(),
                                   r["theta"].get<double>(), shown(r["pairs"]));
    if (r.contains("factor")) line += fmt::format(", {} scaling by {}", shown(r["scaling"]), r["factor"].get<double>());
    if (r.contains("original_context")) line += fmt::format(" from {} tokens", r["original_context"].get<double>());
    page.row("rope", line);
  }
  if (const ordered_json& w = report["sliding_window"]; w.is_object()) {
    page.row("sliding window", fmt::format("{} tokens in {} layers", w["tokens"].get<int>(), w["layers"].get<int>()));
  }
  if (const ordered_json& p = report["pooling"]; p.is_object()) {
    const int labels = p["labels"];
    page.row("result",
             labels > 0 ? fmt::format("scores of {} class{}, from {}", labels, labels > 1 ? "es" : "", pooled_from(p))
                        : fmt::format("embeddings of {} numbers, from {}{}", p["size"].get<int>(), pooled_from(p),
                                      p["generates"] ? "; also text" : ""));
  }
}

void show_fit(const ordered_json& report, Page& page) {
  if (const ordered_json& m = report["memory"]; m.is_object()) {
    std::string cache = fmt::format("{} per token ({})", bytes(m["kv_bytes_per_token"]), shown(m["kv_cache_dtype"]));
    if (m["kv_bytes_per_token"] > 0)
      cache += fmt::format(", {} (int8)", bytes(m["kv_bytes_per_token_by_dtype"]["int8"]));
    if (m["kv_bytes_per_sequence"] > 0) cache += fmt::format(", {} per sequence", bytes(m["kv_bytes_per_sequence"]));
    page.row("KV cache", cache);
    std::vector<std::string> lengths;
    for (const auto& [tokens, size] : m["kv_bytes_at"].items())
      lengths.push_back(fmt::format("{}k tokens: {}", std::stoi(tokens) / 1024, bytes(size)));
    page.row("of a sequence", fmt::format("{}", fmt::join(lengths, ", ")));
    if (m["too_little"].is_string()) page.row("memory", shown(m["too_little"]));
    if (m["plan"].is_object()) {
      page.row("memory", "what `quire serve` takes by default");
      for (const std::string& line : memory_table(m["plan"])) page.line("  " + shown(line));
    }
  }
  if (report.contains("warnings")) {
    for (const ordered_json& warning : report["warnings"]) page.row("warning", shown(warning));
  }
  const bool runs = report["runs"]["ok"];
  std::string note;
  if (runs && !report["tokenizer"].contains("vocab_size"))
    note = ", but only for `quire serve` with token ids as prompts (no vocabulary)";
  if (runs && report["memory"]["too_little"].is_string()) note = ", but the available memory is too small";
  page.row("supported", runs ? "yes" + note : "no: " + shown(report["runs"]["why_not"]));
}

void show(const InspectOptions& options, const ordered_json& report) {
  Page page;
  show_model(report, page);
  show_text(report, page);
  show_fit(report, page);
  if (options.metadata) {
    page.line();
    for (const auto& [key, value] : report["metadata"].items()) {
      const bool array = value.is_object() && value.contains("array_of");
      const std::string text = array ? fmt::format("{} x {}", value["count"].get<uint64_t>(), shown(value["array_of"]))
                                     : cut(shown(value), 300);
      page.line(fmt::format("{} = {}", shown(key), text));
    }
  }
  if (options.tensors) {
    page.line();
    for (const ordered_json& t : report["tensors"]) {
      page.line(fmt::format("{:<44} {:<8} {:<18} {}", shown(t["name"]), shown(t["type"]), t["shape"].dump(),
                            t["bytes"].get<uint64_t>()));
    }
  }
  write_out(STDOUT_FILENO, page.text());
}

void run_inspect(const InspectOptions& options) {
  constexpr size_t kShortArray = 64;
  const size_t longest_array = options.json && options.metadata ? std::numeric_limits<size_t>::max() : kShortArray;
  const ordered_json report = inspect(resolve_model(options.model), longest_array);
  if (!options.json) return show(options, report);
  write_out(STDOUT_FILENO, report.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Describe a model file and check whether Quire can run it");
  command
      ->add_option("model", options->model,
                   "a known name, a .gguf file, a Hugging Face directory or a .safetensors file")
      ->type_name("MODEL")
      ->required();
  command->add_flag("--tensors", options->tensors,
                    "list the tensors: name, type, shape (outermost dimension first), bytes");
  command->add_flag("--metadata", options->metadata, "list the metadata of the file");
  command->add_flag("--json", options->json,
                    "print everything as a JSON object; arrays of more than 64 elements only with --metadata");
  command->footer("Reads no weights. Exit code 1 if the file is broken.");
  command->callback([options] { run_inspect(*options); });
}

}  // namespace quire
