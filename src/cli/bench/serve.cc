// quire bench serve: sends load to any OpenAI-compatible server and reports the latencies that its users would see.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "base/error.h"
#include "cli/bench/bench.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/workload_flags.h"
#include "cli/terminal/progress.h"
#include "json/parse.h"
#include "load/report.h"
#include "load/run.h"
#include "load/workload.h"

namespace quire {
namespace {

struct ServeBenchFlags {
  WorkloadOptions workload;
  LoadOptions load;
  std::string slo, token_ids = "1000-30000", extra, samples;
  std::string cache;  // cold, warm or any; empty: derived from the workload
  bool json = false, seed_given = false, any_length = false;
};

constexpr NameTable<PromptKind, 3> kPromptKindNames{
    {{PromptKind::kTokens, "tokens"}, {PromptKind::kText, "text"}, {PromptKind::kChat, "chat"}}};

// Defaults of --requests.
constexpr int kOpenLoopRequests = 100;
constexpr int kRequestsPerClient = 4;  // enough that a client's first and last request do not dominate

CacheState declared_cache(const ServeBenchFlags& f, const Workload& workload) {
  if (f.cache == "cold") return CacheState::kCold;
  if (f.cache == "warm") return CacheState::kWarm;
  if (f.cache == "any") return CacheState::kAny;
  const bool shares = std::ranges::any_of(workload.requests, [](const auto& r) { return !r.blocks.empty(); });
  return shares ? CacheState::kAny : workload.shared_prefix > 0 ? CacheState::kWarm : CacheState::kCold;
}

void check_flags(ServeBenchFlags& f) {
  WorkloadOptions& w = f.workload;
  LoadOptions& l = f.load;
  if (l.urls.empty()) throw CLI::RequiredError("--url");
  if (l.concurrency == 0 && w.rate == 0 && w.trace.empty())
    throw CLI::RequiredError("--concurrency, --rate or --trace");
  if (w.requests == 0 && w.trace.empty())
    w.requests = l.concurrency > 0 ? kRequestsPerClient * l.concurrency : kOpenLoopRequests;
  if (f.cache == "warm" && w.shared_prefix == 0) throw invalid("--cache warm needs --shared-prefix");
  if (!f.seed_given) w.seed = std::random_device{}();
  if (std::sscanf(f.token_ids.c_str(), "%d-%d", &l.first_id, &l.last_id) != 2 || l.first_id < 0 ||
      l.last_id <= l.first_id)
    throw invalid("--token-ids {} must have the form FIRST-LAST", f.token_ids);
  if (!f.extra.empty()) {
    if (Json::accept(f.extra)) l.extra = parse_json(f.extra, "--extra");
    if (!l.extra.is_object()) throw invalid("--extra {} is not a JSON object", f.extra);
  }
  if (const char* key = std::getenv("OPENAI_API_KEY"); key && l.api_key.empty()) l.api_key = key;
  l.ignore_eos = !f.any_length;
  parse_service_level(f.slo);
}

std::string describe(const ServeBenchFlags& f, const Workload& workload) {
  const WorkloadOptions& w = f.workload;
  std::string what = f.load.concurrency > 0 ? fmt::format("closed loop, {} clients", f.load.concurrency)
                     : w.rate > 0           ? fmt::format("open loop, {} requests per second", w.rate)
                                            : fmt::format("open loop, times of the trace x {}", w.time_scale);
  what += w.trace.empty() ? fmt::format(", {} tokens in, {} out", w.input_tokens, w.output_tokens)
                          : fmt::format(", lengths of {}{}", w.trace,
                                        w.length_scale == 1 ? "" : fmt::format(" x {}", w.length_scale));
  if (workload.shortened > 0)
    what += fmt::format(" ({} of {} shortened)", workload.shortened, workload.requests.size());
  if (w.shared_prefix > 0) what += fmt::format(", {} shared", w.shared_prefix);
  return what + fmt::format(", seed {}", w.seed);
}

// One JSON object per line and request, for further analysis.
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
  if (!file.flush()) throw invalid("--samples {}: the file cannot be written", path);
}

void measure_server(ServeBenchFlags& f) {
  check_flags(f);
  const Workload workload = plan_workload(f.workload);
  std::ofstream samples;
  if (!f.samples.empty()) {  // opened early: the run may take hours
    samples.open(f.samples);
    if (!samples) throw invalid("--samples {}: the file cannot be written", f.samples);
  }
  Progress progress;
  progress.stage("sending requests");
  const auto records = run_load(workload, f.load, [&](int ended, int sent) {
    progress.step(static_cast<size_t>(ended), workload.requests.size(), fmt::format("{} running", sent - ended));
  });
  progress.clear();
  const LoadReport report =
      summarize(records, parse_service_level(f.slo), declared_cache(f, workload), workload.shared_prefix);
  if (f.json) {
    nlohmann::ordered_json json = {{"url", fmt::format("{}", fmt::join(f.load.urls, ","))},
                                   {"model", f.load.model},
                                   {"load", describe(f, workload)},
                                   {"seed", f.workload.seed}};
    json.update(to_json(report));
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    std::printf("%s at %s: %s\n\n%s", f.load.model.c_str(), fmt::format("{}", fmt::join(f.load.urls, ", ")).c_str(),
                describe(f, workload).c_str(), to_text(report).c_str());
  }
  std::fflush(stdout);
  if (!f.samples.empty()) write_samples(samples, f.samples, records);
  if (report.failed > 0) throw invalid("{} of {} requests failed", report.failed, report.requests);
  if (report.cache_violation) throw invalid("{}", *report.cache_violation);
}

}  // namespace

void add_bench_serve_command(CLI::App& bench) {
  const auto f = std::make_shared<ServeBenchFlags>();
  CLI::App* command =
      bench.add_subcommand("serve",
                           "Send load to an OpenAI-compatible server; report latencies, throughput and goodput. Exit "
                           "code 1 if a request fails");
  const char* group = "Options";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->group(group);
  };
  add("--url", f->load.urls,
      "the server, as http://HOST:PORT; without a path, /v1 is appended. Several, joined by commas, take turns")
      ->delimiter(',')
      ->type_name("URL");
  auto* closed = add("-c,--concurrency", f->load.concurrency,
                     "closed loop: number of clients, each sending its next request when its last answer has ended");
  closed->check(CLI::Range(1, 100'000));
  add("--rate", f->workload.rate, "open loop: Poisson arrivals per second")
      ->check(CLI::PositiveNumber)
      ->excludes(closed);
  add("-n,--requests", f->workload.requests,
      "number of requests (default: 4 per client, 100 with --rate, the whole trace)")
      ->check(CLI::PositiveNumber);
  add("-i,--input", f->workload.input_tokens, "tokens per prompt, without a trace")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("-o,--output", f->workload.output_tokens, "tokens per answer, without a trace")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", f->json, "print the report as a JSON object");

  group = "Requests";
  add("--model", f->load.model, "model name in the requests (default: the first that the server lists)");
  add("--api-key", f->load.api_key, "bearer token (default: $OPENAI_API_KEY)")->type_name("KEY");
  add_choice(*command, "--prompts", f->load.prompts, kPromptKindNames,
             "tokens: ids, exact lengths; text: words; chat: words, sent to /chat/completions")
      ->group(group);
  command
      ->add_flag("--any-length", f->any_length,
                 "let answers end on their own; otherwise ignore_eos is sent and a shorter answer is a failure")
      ->group(group);
  add("--token-ids", f->token_ids, "range of the random ids in token prompts")
      ->type_name("FIRST-LAST")
      ->capture_default_str();
  add("--extra", f->extra, "further fields for each request")->type_name("JSON");
  command->add_option("--seed", f->workload.seed, "seed of prompts and arrivals (default: a new one for each run)")
      ->check(check_whole_number, "", "")
      ->each([f](const std::string&) { f->seed_given = true; })
      ->group(group);

  add_trace_flags(
      *command, f->workload, "Trace",
      "take lengths from this file, and arrival times unless --rate or --concurrency is given: Azure's CSV or "
      "Mooncake's JSON lines");

  group = "Cache";
  add("--shared-prefix", f->workload.shared_prefix,
      "tokens that all prompts begin with: part of --input, added to prompts of a trace. A warm-up request puts them "
      "into the server's cache")
      ->check(CLI::PositiveNumber);
  add("--cache", f->cache,
      "declared state of the server's cache; other cached token counts fail the run (default: cold; with "
      "--shared-prefix warm; for traces with shared blocks any)")
      ->check(CLI::IsMember({"cold", "warm", "any"}));

  group = "Measurement";
  add("--warmup", f->load.warmup, "unmeasured requests sent first")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add("--duration", f->load.duration, "seconds after which no more requests are sent")->check(CLI::PositiveNumber);
  add("--timeout", f->load.timeout, "seconds per request")->check(CLI::PositiveNumber)->capture_default_str();
  add("--slo", f->slo, "limits for goodput, as ttft=500ms,tpot=50ms,e2e=10s")->type_name("LIMITS");
  add("--samples", f->samples, "also write the times of each request to this file, as JSON lines")->type_name("FILE");
  command->callback([f] { measure_server(*f); });
}

}  // namespace quire
