// quire batch: answers a file of requests, many at a time.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/files/line_file.h"
#include "cli/batch/batch_output.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/memory/request_memory.h"
#include "cli/output_file.h"
#include "cli/quantize/resume.h"
#include "cli/terminal/interruptible.h"
#include "cli/terminal/load_progress.h"
#include "cli/terminal/progress.h"
#include "model/checkpoint.h"
#include "model/registry.h"
#include "parsers/families.h"
#include "server/api/models.h"
#include "server/batch/batch_line.h"
#include "server/batch/call_runner.h"
#include "server/engine_completer.h"
#include "server/http/server.h"

namespace quire {
namespace {

constexpr size_t kLongestBatchLine = size_t{32} << 20;
constexpr int kUnlimitedQueue = 1'000'000;  // the command bounds the running requests itself

// Arguments that change no answer.
constexpr std::string_view kSameAnswers =
    " IN OUT --model --threads --order --force --help --memory --kv-cache-size --max-num-seqs --cache-dir --cache-size "
    "--shared-cache --host-cache-size --offline --tune --pack-cache --record --trace-out --trace-detail --trace-limit "
    "--request-memory "
    "--tpot-target --ttft-target ";

struct BatchOptions {
  EngineOptions engine;
  std::vector<std::string> names;
  std::string input, output, order = "input", tool_call_parser = "auto", reasoning_parser = "auto";
  size_t request_memory = 0;
  bool force = false;
};

// Everything that decides the answers.
Json batch_order(const CLI::App& command, const BatchOptions& options) {
  Json order = {{"the program", "quire batch " QUIRE_VERSION},
                {"the model", model_fingerprint(Checkpoint::open(resolve_model(options.engine.model)))}};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || kSameAnswers.find(" " + name + " ") != kSameAnswers.npos) continue;
    order[name] = fmt::format("{}", fmt::join(option->results(), " "));
  }
  return order;
}

// The lines of the input as requests under way, and their results.
class BatchRun {
 public:
  BatchRun(LineFile& input, size_t total, BatchOutput& output, const Models& models, const CallLimits& limits,
           int max_running, size_t max_bytes)
      : input_(input),
        total_(total),
        output_(output),
        calls_(models, limits),
        window_(2 * max_running),
        max_bytes_(max_bytes) {}

  // check: may throw, which ends the run.
  void run(const std::function<void()>& check, Progress& progress) {
    constexpr std::chrono::milliseconds kPause{200};
    std::vector<CallResult> results;
    for (bool more = true; more || calls_.calls() > 0;) {
      // While a pipe has no line, results of others are written.
      while (more && has_room() && (calls_.calls() == 0 || input_.is_ready())) more = next_line();
      if (calls_.calls() > 0) calls_.collect(results, CallRunner::Clock::now() + kPause);
      for (const CallResult& result : results) {
        const auto found = lines_.find(result.number);
        output_.add(found->second.id, result_line(found->second.id, found->second.custom_id, result));
        lines_.erase(found);
      }
      results.clear();
      show(progress);
      check();
    }
  }

 private:
  struct Line {
    ResultId id;
    std::string custom_id;
  };

  bool has_room() const {
    if (calls_.calls() == 0) return true;  // a line that is too much for the window runs alone
    return calls_.answers() < window_ && calls_.calls() < static_cast<size_t>(window_) && calls_.bytes() < max_bytes_;
  }

  // false: the input has ended.
  bool next_line() {
    const LineFile::Line read = input_.next_or_skip(text_, kLongestBatchLine);
    if (read == LineFile::Line::kEnd) return false;
    const auto number = static_cast<size_t>(input_.number());
    std::string_view text = text_;
    if (number == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (is_blank(text)) return true;
    try {
      if (read == LineFile::Line::kTooLong)
        throw BatchLineError{
            "line_too_long", fmt::format("the line has more than {} MiB", kLongestBatchLine >> 20), {}, {}};
      BatchLine line = parse_batch_line(text);
      if (!custom_ids_.insert(result_id(line.custom_id)).second)
        throw BatchLineError{"duplicate_custom_id", "an earlier line has the same custom_id", "custom_id",
                             line.custom_id};
      const ResultId id = result_id(text);
      output_.expect(id);
      if (output_.has(id)) return true;
      lines_.emplace(number, Line{id, std::move(line.custom_id)});
      calls_.start(number, *line.api, std::move(line.body), Tenant{});
    } catch (const BatchLineError& error) {
      const ResultId id = result_id_of_wrong_line(number, text);
      output_.expect(id);
      if (!output_.has(id))
        output_.add(id, error_line(id, error.custom_id, error.code, fmt::format("line {}: {}", number, error.message)));
    }
    return true;
  }

  void show(Progress& progress) const {
    const size_t failed = output_.failed(), done = output_.answered() + failed;
    const std::string note = failed > 0 ? fmt::format("{} failed", failed) : std::string();
    if (total_ > 0) return progress.step(std::min(done, total_), total_, note);
    progress.stage(fmt::format("answering: {} done{}{}", done, note.empty() ? "" : ", ", note));
  }

  LineFile& input_;
  const size_t total_;  // 0: not known
  BatchOutput& output_;
  CallRunner calls_;
  const int window_;  // answers under way: twice as many as run, so that the engine never waits for the next
  const size_t max_bytes_;
  std::string text_;
  std::unordered_map<uint64_t, Line> lines_;  // under way, by the line's number
  boost::unordered_flat_set<ResultId, std::hash<ResultId>> custom_ids_;
};

// Lines that are not blank; 0: the input is a pipe.
size_t count_lines(const std::string& path) {
  std::error_code ignored;
  if (path == "-" || !std::filesystem::is_regular_file(path, ignored)) return 0;
  LineFile file(path, path);
  std::string line;
  size_t count = 0;
  while (file.next_or_skip(line, 64) != LineFile::Line::kEnd) count += is_blank(line) ? 0 : 1;
  return count;
}

void refuse_same_file(const BatchOptions& options) {
  std::error_code ignored;
  if (options.input != "-" && options.output != "-" &&
      std::filesystem::equivalent(options.input, options.output, ignored))
    throw invalid("{} is the input, too; choose another name for the output", options.output);
}

// Loads the model and answers all lines.
void answer_all(LineFile& input, BatchOptions& options, const ServerOptions& server, BatchOutput& output,
                const std::function<void()>& check) {
  LoadLine loading(options.engine.model);
  options.engine.on_load = [&](const LoadProgress& progress) {
    loading.show(progress);
    check();
  };
  EngineCompleter completer(std::make_unique<Engine>(options.engine));
  std::vector<ServedModel> served;
  served.push_back({.names = options.names, .completer = &completer});
  const Models models(std::move(served), server);
  Progress progress;
  progress.stage("answering");
  BatchRun run(input, count_lines(options.input), output, models,
               {.work_bytes = server.large_work_bytes, .answer_bytes = server.max_replies_bytes}, server.max_running,
               server.max_bodies_bytes);
  run.run(check, progress);
}

void answer_batch(const CLI::App& command, BatchOptions options) {
  const bool to_file = options.output != "-";
  LineFile input(options.input == "-" ? "/dev/stdin" : options.input,
                 options.input == "-" ? "standard input" : options.input);
  refuse_same_file(options);
  if (to_file) check_output(options.output, {}, options.force);

  ServerOptions server;
  server.max_body_bytes = kLongestBatchLine;
  reserve_request_memory(options.request_memory, server, options.engine);
  server.max_running = options.engine.max_num_seqs;
  server.max_queue = kUnlimitedQueue;
  server.tool_call_parser = options.tool_call_parser;
  server.reasoning_parser = options.reasoning_parser;
  server.version = QUIRE_VERSION;

  const Json order = to_file ? batch_order(command, options) : Json();
  std::optional<BatchOutput> output(std::in_place, options.output, options.order == "input", order, options.force);
  if (!output->warning().empty()) std::fprintf(stderr, "quire: warning: %s\n", output->warning().c_str());
  if (output->found() > 0)
    std::fprintf(stderr, "continuing %s, which has %zu results\n", output->folder().c_str(), output->found());
  run_interruptible([&](const std::function<void()>& check) {
    try {
      answer_all(input, options, server, *output, check);
    } catch (...) {
      if (to_file && output->answered() + output->failed() > 0)
        std::fprintf(stderr, "what is finished is kept in %s; the same command continues it\n",
                     output->folder().c_str());
      output.reset();
      throw;
    }
  });
  const size_t answered = output->answered(), failed = output->failed();
  output->finish();
  const std::string where = to_file ? " in " + options.output : std::string();
  std::fprintf(stderr, "%zu of %zu requests are answered%s\n", answered, answered + failed, where.c_str());
  if (failed > 0) throw invalid("{} of {} requests failed; their lines{} say why", failed, answered + failed, where);
}

}  // namespace

void add_batch_command(CLI::App& app) {
  auto o = std::make_shared<BatchOptions>();
  CLI::App* command = app.add_subcommand("batch", "Answer a file of requests in OpenAI's batch format, many at a time");
  command->add_option("IN", o->input, "requests, a JSON object on each line; - is standard input")
      ->type_name("")
      ->required();
  command
      ->add_option("OUT", o->output,
                   "results, a JSON object on each line; it appears when all are there. - is standard output")
      ->type_name("")
      ->required();
  command->add_option("--order", o->order, "of the results in OUT: that of the requests, or as they finish")
      ->check(CLI::IsMember({"input", "completion"}))
      ->capture_default_str();
  command->add_flag("--force", o->force, "replace OUT, and drop results of another model or other flags");
  command
      ->add_option("--served-model-name", o->names,
                   "names of the model in requests (default: the value of -m). With '*', requests for any model get "
                   "this one")
      ->type_name("NAME ...");
  command
      ->add_option("--tool-call-parser", o->tool_call_parser, "syntax in which the model calls tools (docs/tools.md)")
      ->type_name("NAME")
      ->check(CLI::IsMember(tool_parser_names()).description(""))
      ->capture_default_str();
  command->add_option("--reasoning-parser", o->reasoning_parser, "marks around the model's thoughts (docs/tools.md)")
      ->type_name("NAME")
      ->check(CLI::IsMember(reasoning_parser_names()).description(""))
      ->capture_default_str();
  add_size(*command, "--request-memory", o->request_memory,
           "memory for reading requests and for grammars; 0: a quarter of --memory, between 64MiB and 512MiB");
  add_engine_options(*command, o->engine);
  add_chat_template_options(*command, o->engine);
  command->footer(
      "A run that is interrupted leaves OUT.partial; the same command continues it, and computes no answer again.\n"
      "Exit code 1: some requests failed, or the run did. docs/batches.md describes the format.");
  command->callback([o, command] { answer_batch(*command, *o); });
}

}  // namespace quire
