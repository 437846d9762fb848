#include "cli/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace quire {
namespace {

constexpr const char* kDigits = "0123456789";

CLI::Option* add_size(CLI::App& app, const char* names, size_t& bytes, const char* help) {
  const auto check_number = [](const std::string& text) {
    const bool good = check_whole_number(text.substr(0, text.find_first_not_of(kDigits))).empty();
    return good ? "" : text + ": expected a whole number from 0, with a unit or without";
  };
  return app.add_option(names, bytes, help)
      ->transform(CLI::AsSizeValue(false))
      ->transform(CLI::Validator(check_number, ""))  // runs first
      // So that no sum of sizes overflows.
      ->check([](const std::string& text) { return text.size() > 15 ? "more than 10^15 bytes" : ""; }, "", "")
      ->capture_default_str();
}

}  // namespace

std::string check_whole_number(const std::string& text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool good = error == std::errc() && stop == end && (text.front() != '0' || text.size() == 1);
  return good ? "" : text + ": expected a whole number from 0";
}

void add_kernels_option(CLI::App& app, std::string& kernels) {
  app.add_option("--kernels", kernels, "the instruction set; what the machine lacks is refused")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx"}))
      ->envname("QUIRE_KERNELS")
      ->capture_default_str();
}

void add_model_options(CLI::App& app, EngineOptions& o) {
  app.add_option("-m,--model", o.model, "a registered name (smollm2), a .gguf file, or a Hugging Face directory")
      ->required();
  app.add_option("-t,--threads", o.threads, "threads; 0: the cores this process may use")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  add_kernels_option(app, o.kernels);
  app.add_option("--activations", o.activations,
                 "what inputs of linears are rounded to; auto: bf16 with --kernels amx, else int8 (docs/exactness.md)")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", o.kv_cache_dtype, "auto: bf16, and f32 with --activations f32")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}))
      ->capture_default_str();
  app.add_option("-c,--max-model-len,--ctx-size", o.max_model_len,
                 "most tokens of prompt and answer together; 0: the model's, as far as the cache holds it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens,--batch-size", o.max_num_batched_tokens,
                 "rows of one step: decoding sequences first, then prompt chunks")
      ->check(CLI::Range(1, kMaxNumBatchedTokens))
      ->capture_default_str();
  add_size(app, "--kv-cache-size", o.kv_cache_bytes,
           "memory for the KV cache (4GiB, 512MiB); 0: what all sequences at once need, as far as --memory goes");
  add_size(app, "--memory", o.memory_bytes,
           "memory for everything (16GiB); 0: what the machine or its cgroup has free, less a margin");
}

void add_engine_options(CLI::App& app, EngineOptions& o) {
  add_model_options(app, o);
  app.add_option("--max-num-seqs,--parallel", o.max_num_seqs, "sequences that run at the same time")
      ->check(CLI::Range(1, kMaxNumSeqs))
      ->capture_default_str();
  app.add_flag_callback(
      "--no-prefix-cache,--no-enable-prefix-caching", [&o] { o.prefix_cache = false; },
      "compute every prompt whole, even if it begins like an earlier one");
  app.add_flag_callback(
      "--no-kv-cache", [&o] { o.kv_cache = false; },
      "recompute everything for each token: the baseline that the cache is measured against");
  app.add_option("--cache-dir", o.cache_dir,
                 "a folder that keeps finished KV pages across restarts; private to this user")
      ->capture_default_str();
  add_size(app, "--cache-size", o.cache_bytes, "bytes of files in --cache-dir; 0: 4GiB");
  add_size(app, "--host-cache-size", o.host_cache_bytes,
           "memory beside the KV cache for pages that had to leave it; 0: none");
  app.add_option("--scheduler", o.scheduler,
                 "continuous, or static: a batch ends before the next begins, the baseline of the field")
      ->check(CLI::IsMember({"continuous", "static"}))
      ->capture_default_str();
  app.add_option("--tpot-target", o.tpot_target,
                 "seconds that a step may take for the sake of prompts while answers are being written")
      ->check(CLI::Range(kMinTpotTarget, kMaxTpotTarget))
      ->capture_default_str();
  app.add_option("--ttft-target", o.ttft_target,
                 "seconds a prompt may wait before --tpot-target alone bounds the steps (docs/serving.md)")
      ->check(CLI::Range(0.0, kMaxTtftTarget))
      ->capture_default_str();
  app.add_flag_callback(
      "--no-chunked-prefill", [&o] { o.chunked_prefill = false; }, "compute each prompt as one chunk, whatever waits");
}

std::vector<std::string> memory_table(const ModelInfo& info) {
  const auto mib = [](size_t bytes) { return (bytes + (size_t{1} << 20) - 1) >> 20; };
  const size_t sum =
      info.weight_bytes + info.kv_cache_bytes + info.activation_bytes + info.page_store_bytes + info.other_bytes;
  std::vector<std::string> lines;
  const auto row = [&](const char* what, size_t bytes, const std::string& note) {
    lines.push_back(fmt::format("{:<12}{:>8} MiB{}{}", what, mib(bytes), note.empty() ? "" : "  ", note));
  };
  row("weights", info.weight_bytes, info.quantization);
  row("KV cache", info.kv_cache_bytes,
      fmt::format("{} tokens, {} sequences of {} at once", int64_t{info.kv_pages} * info.page_tokens,
                  info.kv_pages / std::max(1, (info.max_model_len + info.page_tokens - 1) / info.page_tokens),
                  info.max_model_len));
  row("activations", info.activation_bytes, "logits and sampling included");
  if (info.page_store_bytes > 0) row("page store", info.page_store_bytes, "pages outside the KV cache");
  row("the rest", info.other_bytes, "vocabulary, requests, streams, logs");
  row("in all", sum, fmt::format("of {} MiB (--memory)", mib(info.memory_bytes)));
  return lines;
}

}  // namespace quire
