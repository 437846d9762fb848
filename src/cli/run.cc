#include "cli/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/chat/answer.h"
#include "cli/chat/loop.h"
#include "cli/chat/messages.h"
#include "cli/chat/output.h"
#include "cli/chat/signals.h"
#include "cli/chat/timings.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxMessagesBytes = size_t{64} << 20;

constexpr uint64_t kDrawSeed = ~uint64_t{0};  // what CLI11 makes of -1

std::string check_seed(const std::string& text) {
  const std::string wrong = text == "-1" ? "" : check_whole_number(text);
  return wrong.empty() ? "" : wrong + ", or -1 to draw one";
}

std::string read_stdin() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

// Says no before a model is loaded.
SamplingParams sampling_of(const RunOptions& options) {
  SamplingParams sampling = options.sampling;
  if (options.max_tokens != -1) sampling.max_tokens = options.max_tokens;
  // 32 bits of chance: enough to differ, short enough to type again.
  sampling.seed = options.seed && *options.seed != kDrawSeed ? *options.seed : std::random_device{}();
  try {
    validate(sampling, 1 << 20);
  } catch (const Error& e) {
    throw CLI::ValidationError(e.what());
  }
  return sampling;
}

// The text or the messages to answer; neither: a chat at the terminal.
struct Input {
  std::optional<std::string> text;
  std::optional<ordered_json> messages;
  bool interactive() const { return !text && !messages; }
};

Input read_input(const RunOptions& options) {
  Input input;
  if (options.prompt) {
    input.text = *options.prompt;
  } else if (!options.messages_file.empty()) {
    const bool from_stdin = options.messages_file == "-";
    const std::string name = from_stdin ? "standard input" : options.messages_file;
    input.messages =
        parse_messages(from_stdin ? read_stdin() : read_text_file(options.messages_file, kMaxMessagesBytes), name);
  } else if (!::isatty(STDIN_FILENO)) {
    input.text = read_stdin();
    if (input.text->ends_with('\n')) input.text->pop_back();
    if (input.text->empty())
      throw CLI::ValidationError("there is no prompt: give one with -p TEXT or on standard input");
  } else if (options.json) {
    throw CLI::ValidationError("--json needs a prompt: -p TEXT, --messages FILE or standard input");
  }
  return input;
}

TokenIds encode(const Engine& engine, const RunOptions& options, const Input& input) {
  const bool chat = engine.chat_template() && !options.raw;
  if (!chat && input.text && !options.system) return engine.tokenizer().encode(*input.text, {.add_special = true});
  ordered_json messages = input.messages.value_or(ordered_json::array());
  if (input.text) messages.push_back({{"role", "user"}, {"content", *input.text}});
  if (options.system) {
    if (messages[0]["role"] == "system")
      throw invalid("--system: the messages of {} begin with a system message already", options.messages_file);
    messages.insert(messages.begin(), ordered_json{{"role", "system"}, {"content", *options.system}});
  }
  return engine.encode_chat({.messages = std::move(messages)});
}

ordered_json to_json(const StreamedAnswer& answer, const RunOptions& options, uint64_t seed, double load_seconds,
                     const ChatTimings& timings, const ModelInfo& model) {
  ordered_json json{{"model", options.engine.model},
                    {"text", answer.text},
                    {"tokens", answer.tokens},
                    {"finish_reason", name(answer.finish)}};
  if (!answer.stop_reason.empty()) json["stop_reason"] = answer.stop_reason;
  json["seed"] = seed;
  json["usage"] = {{"prompt_tokens", answer.usage.prompt_tokens},
                   {"completion_tokens", answer.usage.completion_tokens},
                   {"total_tokens", answer.usage.prompt_tokens + answer.usage.completion_tokens}};
  json["timings"] = {{"load_seconds", load_seconds}};
  json["timings"].update(to_json(timings, model));
  return json;
}

// Whether the user stopped it.
bool answer_once(Engine& engine, const RunOptions& options, Request request, double load_seconds) {
  const uint64_t seed = request.sampling.seed;
  const bool terminal = ::isatty(STDOUT_FILENO);
  const CatchSignals catching(CatchSignals::Interrupts::kFirst);
  const StreamedAnswer answer = stream_answer(engine, std::move(request), [&](std::string_view piece) {
    return options.json || write_out(STDOUT_FILENO, terminal ? escape_controls(piece) : std::string(piece));
  });
  if (answer.reader_gone) return false;
  ChatTimings timings;
  timings.add(answer.usage);
  if (options.json || !options.quiet) measure_limit(timings, engine.info());
  if (answer.finish == FinishReason::kError) throw invalid("{}", answer.error);
  if (options.json) {
    const ordered_json json = to_json(answer, options, seed, load_seconds, timings, engine.info());
    write_out(STDOUT_FILENO, json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else if (!answer.text.ends_with('\n')) {
    write_out(STDOUT_FILENO, "\n");
  }
  if (!options.json && !options.quiet) {
    const bool full = answer.usage.prompt_tokens + answer.usage.completion_tokens >= engine.info().max_model_len;
    write_out(STDERR_FILENO,
              fmt::format("\n{}seed    {}, finish: {}{}\n", to_text(timings, engine.info()), seed, name(answer.finish),
                          full ? fmt::format(" (the context of {} tokens is full)", engine.info().max_model_len) : ""));
  }
  return answer.finish == FinishReason::kCancelled;
}

}  // namespace

void run(const RunOptions& options) {
  const SamplingParams sampling = sampling_of(options);
  const Input input = read_input(options);
  const auto begin = std::chrono::steady_clock::now();
  bool stopped = false;
  {
    Engine engine(options.engine);
    const double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (input.interactive()) {
      if (options.system && !engine.chat_template())
        throw unsupported("--system: {} has no chat template", options.engine.model);
      chat(engine,
           {.system = options.system.value_or(""), .sampling = sampling, .raw = options.raw, .quiet = options.quiet});
      return;
    }
    stopped =
        answer_once(engine, options, {.prompt = encode(engine, options, input), .sampling = sampling}, load_seconds);
  }
  if (stopped) die_of_interrupt();
}

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  RunOptions& o = *options;
  SamplingParams& s = o.sampling;
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or chat at the terminal");
  CLI::Option* prompt =
      command
          ->add_option("-p,--prompt", o.prompt,
                       "the user's message, or the text to continue (--raw, models without chat template)")
          ->type_name("TEXT");
  CLI::Option* messages =
      command
          ->add_option("--messages", o.messages_file,
                       "a JSON array of messages {\"role\": ..., \"content\": ...}; -: standard input")
          ->type_name("FILE");
  CLI::Option* system = command->add_option("--system,--system-prompt", o.system, "a system message before the others")
                            ->type_name("TEXT");
  CLI::Option* raw = command->add_flag("--raw", o.raw, "continue the text as it is, without the chat template");
  messages->excludes(prompt);
  raw->excludes(messages)->excludes(system);
  command->add_flag("--json", o.json,
                    "print one JSON object instead of text: text, tokens, finish_reason, usage, timings");
  command->add_flag("--quiet", o.quiet, "no figures on standard error");

  const std::string sampling = "Sampling (defaults as in llama.cpp)";
  const auto add = [&](const std::string& names, auto& value, const std::string& help) {
    return command->add_option(names, value, help)->capture_default_str()->group(sampling);
  };
  add("-n,--max-tokens,--n-predict", o.max_tokens,
      "most tokens of an answer; -1: until it ends or the context is full");
  add("--temp,--temperature", s.temperature, "0: always the most probable token");
  add("--top-k", s.top_k, "keep the k most probable tokens; 0: all");
  add("--top-p", s.top_p, "keep the most probable tokens that together reach p; 1: all");
  add("--min-p", s.min_p, "keep tokens at least p times as probable as the best; 0: all");
  add("--typical-p,--typical", s.typical_p, "keep the tokens of the most usual surprise that together reach p; 1: all");
  add("--repetition-penalty,--repeat-penalty", s.repetition_penalty,
      "above 1 discourages what prompt and answer hold already");
  add("--repeat-last-n", s.repeat_last_n, "the penalties see this many last tokens; -1: all");
  add("--frequency-penalty", s.frequency_penalty, "-2 to 2, for each occurrence in the answer");
  add("--presence-penalty", s.presence_penalty, "-2 to 2, once for each token that the answer holds");
  command->add_option("-s,--seed", o.seed, "the same seed gives the same answer; -1 or none: drawn, and printed")
      ->check(check_seed, "", "")
      ->group(sampling);
  // One at a time, because CLI11 takes "[END]" for a list otherwise.
  command->add_option("--stop", s.stop, "end the answer before this text; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(sampling);
  command->add_flag("--ignore-eos", s.ignore_eos, "go on behind the end of the answer")->group(sampling);
  add_engine_options(*command, o.engine);
  command->footer(
      "Without -p and --messages, the prompt is read from standard input (without its last newline); at a terminal, a "
      "chat\n"
      "begins: /help lists its commands, Ctrl-C stops an answer, Ctrl-D ends. Its history is ~/.cache/quire/history.\n"
      "Figures on standard error: time to first token (TTFT), rates, and the bytes of weights read, the limit of "
      "decoding.");
  command->callback([options] { run(*options); });
}

}  // namespace quire
