#include "cli/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "cli/chat/answer.h"
#include "cli/chat/loop.h"
#include "cli/chat/messages.h"
#include "cli/chat/output.h"
#include "cli/chat/signals.h"
#include "cli/chat/standard_input.h"
#include "cli/chat/timings.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/memory/memory_table.h"
#include "cli/terminal/load_progress.h"
#include "engine/ranks/follow.h"
#include "model/registry.h"
#include "server/api/answer/chat_format.h"
#include "server/endpoints/chat.h"
#include "server/engine_completer.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

// How long a prompt waits for the first byte of a pipe. Beyond that, a warning says that it is answered without the pipe.
constexpr std::chrono::seconds kPipePatience(10);

constexpr uint64_t kDrawSeed = ~uint64_t{0};  // what CLI11 makes of -1

constexpr const char* kDemonstrationModel = "smollm2";
constexpr const char* kDemonstrationNote =
    "quire: smollm2 is a demonstration: quick to download and to run, and often wrong. For real work, download a GGUF\n"
    "file of Qwen2.5-7B-Instruct or Llama-3.2-3B-Instruct (Q4_K_M, 5 or 2 GB) and run it with -m FILE.gguf.\n";

constexpr const char* kBaseNote =
    "quire: this is a base model: it continues the text and does not answer it, as with --raw.\n"
    "--chat-template, --system and --messages make it chat.\n";

std::string check_seed(const std::string& text) {
  const std::string wrong = text == "-1" ? "" : check_whole_number(text);
  return wrong.empty() ? "" : wrong + "; -1 draws one";
}

std::string check_max_tokens(const std::string& text) {
  if (text == "-1") return "";
  const std::string wrong = between(1, std::numeric_limits<int>::max()).operator()(text);
  return wrong.empty() || !wrong.starts_with("must be between") ? wrong
                                                                : "must be at least 1, or -1 for no limit, not " + text;
}

// All sampling parameters. With the recommendations of no model, so that wrong flags are refused before one is loaded.
SamplingParams sampling_of(const RunOptions& options, const SamplingDefaults& model, uint64_t seed) {
  SamplingParams sampling = resolve_sampling(options.sampling, model);
  if (options.max_tokens != -1) sampling.max_tokens = options.max_tokens;
  sampling.seed = seed;
  return sampling;
}

uint64_t draw_seed(const RunOptions& options) {
  // 32 random bits: enough to differ, short enough to type again.
  return options.seed && *options.seed != kDrawSeed ? *options.seed : std::random_device{}();
}

// The text or the messages to answer; if neither is given, a chat at the terminal.
struct Input {
  std::optional<std::string> text;
  std::optional<ordered_json> messages;
  bool interactive() const { return !text && !messages; }
};

std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.erase(text.size() - (text.ends_with("\r\n") ? 2 : 1));
  return text;
}

Input read_input(const RunOptions& options) {
  Input input;
  if (options.prompt) {
    input.text = joined_prompt(*options.prompt, without_last_newline(read_piped_text(STDIN_FILENO, kPipePatience)));
  } else if (options.messages_file == "-") {
    input.messages = parse_messages(read_standard_input(STDIN_FILENO), "standard input");
  } else if (!options.messages_file.empty()) {
    input.messages = parse_messages(read_text_file(options.messages_file, kMaxInputBytes), options.messages_file);
    if (!without_last_newline(read_piped_text(STDIN_FILENO, kPipePatience)).empty()) {
      throw CLI::ValidationError("there are both --messages " + options.messages_file +
                                 " and a text on standard input; put the text into the file, or use < /dev/null");
    }
  } else if (!::isatty(STDIN_FILENO)) {
    input.text = without_last_newline(read_standard_input(STDIN_FILENO));
    if (input.text->empty())
      throw CLI::ValidationError("the prompt is empty; pass one with -p TEXT or on standard input");
  } else if (options.json) {
    throw CLI::ValidationError("--json needs a prompt: -p TEXT, --messages FILE or standard input");
  }
  return input;
}

// The messages as the server takes them: contents in parts, calls and results, and nothing that the prompt would lack.
ChatInput as_served(Engine& engine, const ordered_json& messages) {
  const ApiLimits limits{.vocab_size = engine.info().vocab_size, .max_model_len = engine.info().max_model_len};
  const std::string body =
      ordered_json{{"messages", messages}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  ApiRequest request = parse_api_request(chat_api(), body, limits);
  const EngineCompleter completer(engine);
  ChatFormat(completer.text(), "auto", "auto").prepare(request);
  return std::move(request.chat);
}

TokenIds encode(Engine& engine, const RunOptions& options, const Input& input) {
  const bool chat = engine.chat_template() && !options.raw;
  if (!chat && input.text && !options.system) return engine.tokenizer().encode(*input.text, {.add_special = true});
  ordered_json messages = input.messages.value_or(ordered_json::array());
  if (input.text) messages.push_back({{"role", "user"}, {"content", *input.text}});
  if (options.system) {
    if (messages[0]["role"] == "system")
      throw invalid("--system: {} already begins with a system message", options.messages_file);
    messages.insert(messages.begin(), ordered_json{{"role", "system"}, {"content", *options.system}});
  }
  return engine.encode_chat(as_served(engine, messages));
}

ordered_json answer_json(const StreamedAnswer& answer, const RunOptions& options, const SamplingParams& sampling,
                         double load_seconds, const ChatTimings& timings, const ModelInfo& model,
                         const MemoryPlan& memory) {
  ordered_json json{{"model", options.engine.model},
                    {"text", answer.text},
                    {"tokens", answer.tokens},
                    {"finish_reason", name(answer.finish)}};
  if (!answer.stop_reason.empty()) json["stop_reason"] = answer.stop_reason;
  json["seed"] = sampling.seed;
  json["sampling"] = {{"temperature", sampling.temperature},
                      {"top_k", sampling.top_k},
                      {"top_p", sampling.top_p},
                      {"min_p", sampling.min_p},
                      {"repetition_penalty", sampling.repetition_penalty}};
  json["usage"] = {{"prompt_tokens", answer.usage.prompt_tokens},
                   {"completion_tokens", answer.usage.completion_tokens},
                   {"total_tokens", answer.usage.prompt_tokens + answer.usage.completion_tokens}};
  json["timings"] = {{"load_seconds", load_seconds}};
  json["timings"].update(to_json(timings, model));
  json["memory"] = memory_json(memory);
  return json;
}

// Returns whether the user stopped it.
bool answer_once(Engine& engine, const RunOptions& options, Request request, double load_seconds, double bandwidth) {
  const SamplingParams sampling = request.sampling;
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const CatchSignals catching(CatchSignals::Interrupts::kFirst);
  const bool loop_check = options.loop_check && !sampling.ignore_eos;
  const StreamedAnswer answer = stream_answer(engine, std::move(request), loop_check, [&](std::string_view piece) {
    return options.json || write_out(STDOUT_FILENO, terminal ? escape_controls(piece) : std::string(piece));
  });
  if (answer.reader_gone) return false;
  ChatTimings timings{.bandwidth = bandwidth};
  timings.add(answer.usage);
  timings.read_drafters(engine);
  if (answer.failed()) {
    if (!options.json && !answer.text.empty()) write_out(STDOUT_FILENO, "\n");
    throw invalid("{}", answer.error);
  }
  if (options.json) {
    const ordered_json json =
        answer_json(answer, options, sampling, load_seconds, timings, engine.info(), engine.memory_plan());
    write_out(STDOUT_FILENO, json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else if (!answer.text.ends_with('\n')) {
    write_out(STDOUT_FILENO, "\n");
  }
  if (!options.json && !options.quiet) {
    const std::string cut = describe_cut(answer, engine.info().max_model_len);
    const std::string_view reason = answer.looped ? "repetition" : name(answer.finish);
    write_out(STDERR_FILENO, fmt::format("{}{}\n{}sampling: {}\nseed {}, finish: {}\n", cut, cut.empty() ? "" : "\n",
                                         to_text(timings, engine.info()),
                                         describe_sampling(sampling, options.sampling, engine.info().sampling_defaults),
                                         sampling.seed, reason));
  }
  return answer.finish == FinishReason::kCancelled;
}

// The engine, and how long it took to load.
std::pair<std::unique_ptr<Engine>, double> load_engine(const RunOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  LoadLine line(escape_controls(options.engine.model, true));
  EngineOptions engine_options = options.engine;
  if (!options.json) engine_options.on_load = [&line](const LoadProgress& progress) { line.show(progress); };
  auto engine = std::make_unique<Engine>(engine_options);
  return {std::move(engine), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

// A base model has learnt to continue texts; its file may have a chat template all the same. Who asks for a chat gets one.
bool is_to_complete(const RunOptions& options) {
  const RegisteredModel* known = find_registered(options.engine.model);
  const bool wants_chat = options.system || !options.messages_file.empty() || !options.engine.chat_template.empty();
  return known && known->is_base && !wants_chat;
}

}  // namespace

void run(RunOptions options) {
  const uint64_t seed = draw_seed(options);
  const bool base = !options.raw && is_to_complete(options);
  options.raw |= base;
  try {
    validate(sampling_of(options, {}, seed), 1 << 20);
  } catch (const Error& e) {
    throw CLI::ValidationError(e.what());
  }
  if (options.engine.adapters.size() > 1)
    throw CLI::ValidationError("--lora", "may be given once: one adapter answers");
  if (connect_processes(options.processes, options.engine)) return follow(options.engine);
  const std::string adapter = options.engine.adapters.empty() ? "" : options.engine.adapters.front().name;
  const Constraint constraint = compile_constraint(options.constraint);
  const Input input = read_input(options);
  const bool talkative = !options.quiet && !options.json;
  if (talkative && options.engine.model == kDemonstrationModel) write_out(STDERR_FILENO, kDemonstrationNote);
  if (talkative && base) write_out(STDERR_FILENO, kBaseNote);
  const double bandwidth = options.quiet && !options.json ? 0 : measure_read_bandwidth(options.engine.threads);
  bool stopped = false;
  {
    const auto [engine, load_seconds] = load_engine(options);
    const SamplingParams sampling = sampling_of(options, engine->info().sampling_defaults, seed);
    if (input.interactive()) {
      if (options.system && !engine->chat_template()) {
        throw unsupported("--system: {} has no chat template; set one with --chat-template", options.engine.model);
      }
      chat(*engine, {.system = options.system.value_or(""),
                     .sampling = sampling,
                     .constraint = constraint,
                     .adapter = adapter,
                     .sampling_text = describe_sampling(sampling, options.sampling, engine->info().sampling_defaults),
                     .bandwidth = bandwidth,
                     .raw = options.raw,
                     .quiet = options.quiet,
                     .loop_check = options.loop_check && !sampling.ignore_eos});
      return;
    }
    Request request{
        .prompt = encode(*engine, options, input), .sampling = sampling, .constraint = constraint, .adapter = adapter};
    stopped = answer_once(*engine, options, std::move(request), load_seconds, bandwidth);
  }
  if (stopped) die_of_interrupt();
}

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  RunOptions& o = *options;
  SamplingParams& s = o.sampling.others;
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or chat in the terminal");
  CLI::Option* prompt =
      command
          ->add_option("-p,--prompt", o.prompt,
                       "the user's message; with --raw or a model without chat template, the text to continue")
          ->type_name("TEXT");
  CLI::Option* messages =
      command
          ->add_option("--messages", o.messages_file,
                       "a JSON array of messages {\"role\": ..., \"content\": ...}; - reads standard input")
          ->type_name("FILE");
  CLI::Option* system =
      command->add_option("--system,--system-prompt", o.system, "the system message")->type_name("TEXT");
  command
      ->add_option("-n,--max-tokens,--n-predict", o.max_tokens,
                   "most tokens of an answer; -1: no limit but the context length")
      ->check(check_max_tokens, "", "")
      ->capture_default_str();
  command->add_flag("--json", o.json,
                    "print one JSON object instead of text: text, tokens, finish_reason, usage, timings");
  command->add_flag("-q,--quiet", o.quiet, "do not print statistics");
  CLI::Option* raw = command->add_flag("--raw", o.raw, "continue the text as it is, without the chat template");
  messages->excludes(prompt);
  raw->excludes(messages)->excludes(system);

  const std::string sampling = "Sampling";
  add_sampling_flags(*command, o.sampling, sampling);
  command->add_option("-s,--seed", o.seed, "the same seed gives the same answer; -1: draw one and print it (default)")
      ->type_name("N")
      ->check(check_seed, "", "")
      ->group(sampling);
  // One at a time, because CLI11 reads "[END]" as a list otherwise.
  command->add_option("--stop", s.stop, "end the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; }, "", "")
      ->group(sampling);
  command
      ->add_flag_callback(
          "--no-loop-check", [&o] { o.loop_check = false; }, "do not stop when the answer repeats itself")
      ->group(sampling);
  for (CLI::Option* option : add_constraint_flags(*command, o.constraint))
    option->excludes(command->get_option("--ignore-eos"));
  add_engine_options(*command, o.engine);
  add_process_options(*command, o.processes, o.engine);
  add_chat_template_options(*command, o.engine);
  command->footer(
      "Without -p and --messages, run reads the prompt from standard input, without its last newline. With -p, what is "
      "piped in follows the prompt after an empty line: cat notes | quire run -m smollm2 -p \"Summarise:\". A pipe "
      "that "
      "stays silent for 10 seconds is left out, with a warning. In a terminal, run without a prompt "
      "starts a chat: /help lists its commands, Ctrl-C stops an answer, Ctrl-D ends the chat. The history of what you "
      "type is in ~/.cache/quire/history.\n"
      "Statistics go to standard error: time to first token, tokens per second, and how close decoding comes to the "
      "memory bandwidth, which bounds its speed.");
  command->callback([options] { run(*options); });
}

}  // namespace quire
