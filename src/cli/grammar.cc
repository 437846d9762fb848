// quire grammar: compiles a schema, regex or grammar, and checks texts against it.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/line_file.h"
#include "base/files/mapped_file.h"
#include "cli/commands.h"
#include "cli/load_tokenizer.h"
#include "engine/constraint_compiler.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"
#include "json/parse.h"

namespace quire {
namespace {

using grammar::GrammarPtr;
using grammar::Matcher;
using grammar::Vocabulary;

struct GrammarOptions {
  std::string schema, gbnf, model, tokenizer, check;
  std::optional<std::string> regex;
  bool stats = false;
};

// Of this thread's CPU time: compiling and masks wait for nothing, and other processes should not count.
double microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// The tokens of a text, longest first from its beginning.
TokenIds longest_tokens(const Vocabulary& vocabulary, std::string_view text) {
  TokenIds ids;
  const grammar::Trie& trie = vocabulary.trie();
  for (size_t at = 0; at < text.size();) {
    TokenId best = kNoToken;
    size_t length = 0;
    uint32_t i = 0, end = static_cast<uint32_t>(trie.size());
    for (size_t depth = 0; at + depth < text.size() && i < end;) {
      if (trie[i].byte != static_cast<uint8_t>(text[at + depth])) {
        i = trie[i].end;
        continue;
      }
      ++depth;
      if (trie[i].token != kNoToken) {
        best = trie[i].token;
        length = depth;
      }
      end = trie[i].end;
      ++i;
    }
    if (best == kNoToken) return {};  // no token has this byte
    ids.push_back(best);
    at += length;
  }
  return ids;
}

// As a model would emit it.
TokenIds tokens_of(const Tokenizer* tokenizer, const Vocabulary& vocabulary, const std::string& text) {
  if (tokenizer != nullptr) {
    TokenIds ids = tokenizer->encode(text, {.parse_special = false});
    std::string spelled;
    for (const TokenId id : ids) spelled += vocabulary.bytes(id);
    if (spelled == text) return ids;  // not so where a vocabulary adds a space before a text
  }
  return longest_tokens(vocabulary, text);
}

struct Times {
  std::vector<double> masks;  // microseconds

  // With how many took at most so many microseconds, so that the times of several runs can be added up.
  Json summary() {
    std::ranges::sort(masks);
    const auto at = [&](double share) {
      const auto index = static_cast<size_t>(share * static_cast<double>(masks.size()));
      return masks.empty() ? 0 : std::round(masks[std::min(index, masks.size() - 1)] * 100) / 100;
    };
    Json up_to = Json::object();
    for (const int bound : {1, 2, 5, 10, 20, 30, 50, 100, 200, 500, 1000, 1500, 2000, 5000, 10000})
      up_to[std::to_string(bound)] = std::ranges::upper_bound(masks, bound) - masks.begin();
    return {{"count", masks.size()}, {"p50", at(0.5)}, {"p99", at(0.99)}, {"max", at(1)}, {"up_to", up_to}};
  }
};

bool accepts(const std::shared_ptr<const Vocabulary>& vocabulary, const GrammarPtr& compiled, const TokenIds& tokens,
             Times& times) {
  Matcher matcher(vocabulary, compiled);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  const auto fill = [&] {
    const double start = microseconds();
    matcher.fill_mask(mask);
    times.masks.push_back(microseconds() - start);
  };
  for (const TokenId token : tokens) {
    fill();
    const bool allowed = (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
    if (!matcher.advance(token) || !allowed) return false;
  }
  fill();
  return matcher.accepting();
}

// Looks for a way to write an instance that the grammar accepts, with the members of its objects in any order.
class Rewriting {
 public:
  explicit Rewriting(GrammarPtr compiled) : compiled_(std::move(compiled)) {}

  // Empty: none was found.
  std::string find(const Json& instance) {
    attempts_ = 0;
    Draft draft{Matcher(vocabulary_, compiled_), ""};
    return write(instance, draft) && draft.matcher.accepting() ? draft.text : "";
  }

 private:
  struct Draft {
    Matcher matcher;
    std::string text;
  };
  static constexpr int kMostAttempts = 20'000;

  static bool add(std::string_view text, Draft& draft) {
    draft.text += text;
    return draft.matcher.advance_bytes(text);
  }

  bool write(const Json& value, Draft& draft) {
    if (value.is_object()) {
      std::vector<std::string> names;
      for (const auto& [name, member] : value.items()) names.push_back(name);
      return add("{", draft) && write_members(value, names, draft);
    }
    if (!value.is_array()) return add(value.dump(), draft);
    if (!add("[", draft)) return false;
    for (size_t i = 0; i < value.size(); ++i) {
      if ((i > 0 && !add(", ", draft)) || !write(value[i], draft)) return false;
    }
    return add("]", draft);
  }

  bool write_members(const Json& object, const std::vector<std::string>& names, Draft& draft) {
    if (names.empty()) return add("}", draft);
    for (size_t i = 0; i < names.size() && ++attempts_ < kMostAttempts; ++i) {
      Draft tried = draft;
      if (names.size() < object.size() && !add(", ", tried)) return false;
      if (!add(Json(names[i]).dump() + ": ", tried) || !write(object[names[i]], tried)) continue;
      std::vector<std::string> others = names;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (!write_members(object, others, tried)) continue;
      draft = std::move(tried);
      return true;
    }
    return false;
  }

  GrammarPtr compiled_;
  std::shared_ptr<const Vocabulary> vocabulary_ = Vocabulary::of_bytes();
  int attempts_ = 0;
};

// Why an instance is refused that the schema allows; empty if the schema refuses it however it is written.
std::string reason(const std::string& line, Rewriting& rewriting) {
  Json instance;
  try {
    instance = parse_json(line, "instance");
  } catch (const Error& error) {
    return error.what();
  }
  const std::string found = rewriting.find(instance);
  if (found.empty()) return {};
  const bool same_order = Json::parse(found).dump() == instance.dump();
  return fmt::format("{}; this is accepted: {}",
                     same_order ? "the blanks or the spelling of characters" : "the order of properties", found);
}

std::string read_all(const std::string& file) {
  if (file != "-") return read_text_file(file, size_t{64} << 20);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

GrammarPtr compile(const GrammarOptions& options, const std::string& text) {
  if (options.regex) return grammar::compile_regex(*options.regex);
  if (!options.gbnf.empty()) return grammar::compile_gbnf(text);
  return grammar::compile_json_schema(
      parse_json(text, options.schema == "-" ? "schema" : options.schema, {.depth = 200}), {},
      options.check.empty() ? grammar::Texts::kToWrite : grammar::Texts::kToCheck);
}

// source: the text of the schema, grammar or regex.
void check_lines(const GrammarOptions& options, const std::string& source, const GrammarPtr& compiled,
                 const Tokenizer* tokenizer, const std::shared_ptr<const Vocabulary>& vocabulary, Times& times) {
  std::optional<LineFile> lines;
  if (options.check != "-") lines.emplace(options.check, options.check);
  std::optional<Rewriting> rewriting;
  size_t number = 0;
  for (std::string line;
       lines ? lines->next(line, size_t{256} << 20) : static_cast<bool>(std::getline(std::cin, line));) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (options.schema.empty()) {  // the text, as a JSON string
      const Json value = parse_json(line, fmt::format("line {}", number));
      if (!value.is_string()) throw invalid("line {} must be a JSON string", number);
      line = value.get<std::string>();
    }
    const TokenIds tokens = tokens_of(tokenizer, *vocabulary, line);
    const bool spelled = !tokens.empty() || line.empty();
    const bool accepted = spelled && accepts(vocabulary, compiled, tokens, times);
    Json answer = {{"accepted", accepted}};
    if (!options.schema.empty() && !accepted) {
      // With a grammar of its own, so that the statistics are those of the lines.
      if (!rewriting) rewriting.emplace(compile(options, source));
      if (const std::string why = reason(line, *rewriting); !why.empty()) answer["reason"] = why;
    }
    fmt::print("{}\n", answer.dump());
  }
}

void run_grammar(const GrammarOptions& options) {
  const int sources = (options.schema.empty() ? 0 : 1) + (options.gbnf.empty() ? 0 : 1) + (options.regex ? 1 : 0);
  if (sources != 1) throw CLI::ValidationError("pass one of --schema, --regex and --gbnf");
  const std::string& file = options.gbnf.empty() ? options.schema : options.gbnf;
  std::string text;
  if (file == "-" && options.check == "-") {
    std::getline(std::cin, text);
  } else if (!file.empty()) {
    text = read_all(file);
  }
  const double start = microseconds();
  const GrammarPtr compiled = compile(options, text);
  const double compile_us = microseconds() - start;

  std::optional<Tokenizer> tokenizer;
  if (!options.model.empty() || !options.tokenizer.empty())
    tokenizer = load_tokenizer(options.tokenizer, options.model);
  const auto vocabulary = tokenizer
                              ? grammar_vocabulary(*tokenizer, tokenizer->vocab_size(), tokenizer->end_of_generation())
                              : Vocabulary::of_bytes();
  Times times;
  if (options.check.empty()) {
    std::vector<uint32_t> mask(vocabulary->mask_words());
    Matcher(vocabulary, compiled).fill_mask(mask);  // tokens are looked up, and the beginning may need too much
    fmt::print("Every keyword is honoured.\n");
  } else {
    check_lines(options, text, compiled, tokenizer ? &*tokenizer : nullptr, vocabulary, times);
  }
  if (options.stats) {
    const Json stats = {{"compile_us", std::round(compile_us)},
                        {"mask_us", times.summary()},
                        {"memory_bytes", compiled->memory()},
                        {"vocabulary", vocabulary->size()}};
    fmt::print("{}\n", stats.dump());
  }
}

}  // namespace

void add_grammar_command(CLI::App& app) {
  auto options = std::make_shared<GrammarOptions>();
  CLI::App* command =
      app.add_subcommand("grammar", "Check whether a schema, regex or grammar is honoured, and texts against it");
  command->add_option("--schema", options->schema, "a JSON schema; - is standard input")->type_name("FILE");
  command->add_option("--regex", options->regex, "a regex that the whole text matches")->type_name("REGEX");
  command->add_option("--gbnf", options->gbnf, "a grammar in GBNF or EBNF; - is standard input")->type_name("FILE");
  command
      ->add_option(
          "--check-jsonl", options->check,
          "print {\"accepted\": true} or false for each line: a JSON instance as it stands, or with --regex and "
          "--gbnf a text as a JSON string. \"reason\" says so if only the order of properties or the way of writing "
          "is refused. - is standard input; if the schema comes from there too, it is the first line")
      ->type_name("FILE");
  command
      ->add_option("-m,--model", options->model, "check token by token with this model's vocabulary, not byte by byte")
      ->type_name("MODEL");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "likewise, with this tokenizer.json, tokenizer.json.gz or GGUF file")
      ->type_name("FILE");
  command->add_flag("--stats", options->stats, "print the times to compile and to fill masks, and the memory, as JSON");
  command->callback([options] { run_grammar(*options); });
}

}  // namespace quire
