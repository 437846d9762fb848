// quire bench serve: load for any OpenAI-compatible server, and what its users would have seen.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "base/error.h"
#include "cli/bench/bench.h"
#include "cli/engine_options.h"
#include "load/report.h"
#include "load/run.h"
#include "load/workload.h"

namespace quire {
namespace {

struct ServeBenchFlags {
  WorkloadOptions workload;
  LoadOptions load;
  std::string slo, token_ids = "1000-30000", extra, samples;
  std::string cache;  // empty: cold, warm or any by what the workload shares
  bool json = false, seed_given = false, any_length = false;
};

constexpr int kOpenLoopRequests = 100;  // of a rate without a count
constexpr int kRequestsPerClient = 4;   // of a closed loop without a count: the first and the last one are not all

CacheState declared_cache(const ServeBenchFlags& f, const Workload& workload) {
  if (f.cache == "cold") return CacheState::kCold;
  if (f.cache == "warm") return CacheState::kWarm;
  if (f.cache == "any") return CacheState::kAny;
  const bool shares = std::ranges::any_of(workload.requests, [](const auto& r) { return !r.blocks.empty(); });
  return shares ? CacheState::kAny : workload.shared_prefix > 0 ? CacheState::kWarm : CacheState::kCold;
}

void check(ServeBenchFlags& f) {
  WorkloadOptions& w = f.workload;
  LoadOptions& l = f.load;
  if (l.url.empty()) throw CLI::RequiredError("--url");
  if (l.concurrency == 0 && w.rate == 0 && w.trace.empty())
    throw CLI::RequiredError("--concurrency, --rate or --trace");
  if (w.requests == 0 && w.trace.empty())
    w.requests = l.concurrency > 0 ? kRequestsPerClient * l.concurrency : kOpenLoopRequests;
  if (f.cache == "warm" && w.shared_prefix == 0) throw invalid("--cache warm: needs --shared-prefix");
  if (!f.seed_given) w.seed = std::random_device{}();
  if (std::sscanf(f.token_ids.c_str(), "%d-%d", &l.first_id, &l.last_id) != 2 || l.first_id < 0 ||
      l.last_id <= l.first_id)
    throw invalid("--token-ids {}: write FIRST-LAST", f.token_ids);
  if (!f.extra.empty()) {
    l.extra = nlohmann::json::parse(f.extra, nullptr, false);
    if (!l.extra.is_object()) throw invalid("--extra {}: no JSON object", f.extra);
  }
  if (const char* key = std::getenv("OPENAI_API_KEY"); key && l.api_key.empty()) l.api_key = key;
  l.ignore_eos = !f.any_length;
  parse_service_level(f.slo);
}

std::string describe(const ServeBenchFlags& f, const Workload& workload) {
  const WorkloadOptions& w = f.workload;
  std::string what = f.load.concurrency > 0 ? fmt::format("closed loop, {} clients", f.load.concurrency)
                     : w.rate > 0           ? fmt::format("open loop, {} requests a second", w.rate)
                                            : fmt::format("open loop, times of the trace x {}", w.time_scale);
  what += w.trace.empty() ? fmt::format(", {} tokens in, {} out", w.input_tokens, w.output_tokens)
                          : fmt::format(", lengths of {}{}", w.trace,
                                        w.length_scale == 1 ? "" : fmt::format(" x {}", w.length_scale));
  if (workload.shortened > 0) what += fmt::format(" ({} of {} cut)", workload.shortened, workload.requests.size());
  if (w.shared_prefix > 0) what += fmt::format(", {} shared", w.shared_prefix);
  return what + fmt::format(", seed {}", w.seed);
}

// One line of JSON a request: for figures of one's own.
void write_samples(std::ofstream& file, const std::string& path, const std::vector<RequestRecord>& records) {
  for (const RequestRecord& r : records) {
    file << nlohmann::ordered_json{{"intended", r.intended},
                                   {"sent", r.sent},
                                   {"finished", r.finished},
                                   {"input_tokens", r.input_tokens},
                                   {"output_tokens", r.output_tokens},
                                   {"cached_tokens", r.cached_tokens.value_or(-1)},
                                   {"pieces", r.pieces},
                                   {"failure", r.failure}}
                .dump()
         << '\n';
  }
  if (!file.flush()) throw invalid("--samples {}: cannot be written", path);
}

void run(ServeBenchFlags& f) {
  check(f);
  const Workload workload = plan_workload(f.workload);
  std::ofstream samples;
  if (!f.samples.empty()) {  // opened before the run, which may take hours
    samples.open(f.samples);
    if (!samples) throw invalid("--samples {}: cannot be written", f.samples);
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto records = run_load(workload, f.load, [&](int ended, int sent) {
    if (terminal)
      std::fprintf(stderr, "\r%d of %zu requests ended, %d under way  ", ended, workload.requests.size(), sent - ended);
  });
  if (terminal) std::fprintf(stderr, "\r\033[K");
  const LoadReport report =
      summarize(records, parse_service_level(f.slo), declared_cache(f, workload), workload.shared_prefix);
  if (f.json) {
    nlohmann::ordered_json json = {
        {"url", f.load.url}, {"model", f.load.model}, {"load", describe(f, workload)}, {"seed", f.workload.seed}};
    json.update(to_json(report));
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    std::printf("%s at %s: %s\n\n%s", f.load.model.c_str(), f.load.url.c_str(), describe(f, workload).c_str(),
                to_text(report).c_str());
  }
  std::fflush(stdout);
  if (!f.samples.empty()) write_samples(samples, f.samples, records);
  if (report.failed > 0) throw invalid("{} of {} requests failed", report.failed, report.requests);
  if (report.cache_violation) throw invalid("{}", *report.cache_violation);
}

}  // namespace

void add_bench_serve_command(CLI::App& bench) {
  const auto f = std::make_shared<ServeBenchFlags>();
  CLI::App* command = bench.add_subcommand(
      "serve", "Load for any OpenAI-compatible server: latencies, throughput, goodput; exit code 1 if a request fails");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help);
  };
  add("--url", f->load.url, "the server, as http://HOST:PORT; /v1 is appended when there is no path");
  add("--model", f->load.model, "name in the requests (default: the first that the server lists)");
  add("--api-key", f->load.api_key, "sent as a bearer token (default: $OPENAI_API_KEY)");
  command
      ->add_option("--prompts", f->load.prompts,
                   "tokens: ids, exact lengths; text: words; chat: words to /chat/completions")
      ->transform(CLI::CheckedTransformer(std::map<std::string, PromptKind>{
          {"tokens", PromptKind::kTokens}, {"text", PromptKind::kText}, {"chat", PromptKind::kChat}}))
      ->option_text("{tokens,text,chat}");
  auto* closed = add("-c,--concurrency", f->load.concurrency,
                     "closed loop: so many clients, each sending when its last answer has ended");
  closed->check(CLI::Range(1, 100'000));
  add("--rate", f->workload.rate, "open loop: Poisson arrivals a second")->check(CLI::PositiveNumber)->excludes(closed);
  add("--trace", f->workload.trace,
      "lengths, and without --rate and --concurrency times, of a file: Azure's CSV or Mooncake's JSON lines");
  add("-n,--requests", f->workload.requests, "how many (default: the whole trace; 4 a client; 100 at a rate)")
      ->check(CLI::PositiveNumber);
  add("--skip", f->workload.skip, "requests of the trace to leave out first")->check(CLI::NonNegativeNumber);
  add("--duration", f->load.duration, "seconds after which no more are sent")->check(CLI::PositiveNumber);
  add("-i,--input", f->workload.input_tokens, "tokens of a prompt, without a trace")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("-o,--output", f->workload.output_tokens, "tokens of an answer, without a trace")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("--time-scale", f->workload.time_scale, "factor on the trace's times; 0.1: ten times as fast")
      ->check(CLI::PositiveNumber);
  add("--length-scale", f->workload.length_scale, "factor on the trace's lengths")->check(CLI::PositiveNumber);
  add("--max-input", f->workload.max_input_tokens, "longer prompts of the trace are cut to so many tokens")
      ->check(CLI::PositiveNumber);
  add("--max-output", f->workload.max_output_tokens, "longer answers of the trace are cut to so many tokens")
      ->check(CLI::PositiveNumber);
  add("--shared-prefix", f->workload.shared_prefix,
      "tokens that all prompts begin with; part of --input, in front of a trace's prompts. A warm-up request makes "
      "them warm")
      ->check(CLI::PositiveNumber);
  add("--cache", f->cache,
      "what the run is declared to be; prompts that are otherwise fail it (default: cold; warm with --shared-prefix; "
      "any for traces that share)")
      ->check(CLI::IsMember({"cold", "warm", "any"}));
  command->add_flag("--any-length", f->any_length,
                    "answers may end on their own; otherwise ignore_eos is sent, and a shorter answer is a failure");
  add("--warmup", f->load.warmup, "requests before the measurement")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add("--token-ids", f->token_ids, "range of the random ids of token prompts")->capture_default_str();
  add("--extra", f->extra, "JSON object of further fields for each request");
  add("--timeout", f->load.timeout, "seconds for a request")->check(CLI::PositiveNumber)->capture_default_str();
  add("--slo", f->slo, "limits for goodput, as ttft=500ms,tpot=50ms,e2e=10s");
  command->add_option("--seed", f->workload.seed, "of prompts and arrivals (default: another in each run)")
      ->check(check_whole_number, "", "")
      ->each([f](const std::string&) { f->seed_given = true; });
  command->add_flag("--json", f->json, "print JSON");
  add("--samples", f->samples, "also write each request's times to this file, as JSON lines");
  command->callback([f] { run(*f); });
}

}  // namespace quire
