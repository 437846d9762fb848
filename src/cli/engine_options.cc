#include "cli/engine_options.h"

namespace quire {

void add_engine_options(CLI::App& app, EngineOptions& o) {
  app.add_option("-m,--model", o.model, "a registered name (smollm2), a .gguf file, or a Hugging Face directory")
      ->required();
  app.add_option("-t,--threads", o.threads, "threads; 0: the cores this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--kernels", o.kernels, "the instruction set; what the machine lacks is refused")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx2vnni", "avx512"}))
      ->envname("QUIRE_KERNELS")
      ->capture_default_str();
  app.add_option("--activations", o.activations, "what inputs of linears are rounded to (docs/exactness.md)")
      ->check(CLI::IsMember({"auto", "default", "f32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", o.kv_cache_dtype, "auto: bf16, and f32 with --activations f32")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}))
      ->capture_default_str();
  app.add_option("-c,--max-model-len,--ctx-size", o.max_model_len,
                 "most tokens of prompt and answer together; 0: the model's, as far as the cache holds it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-num-seqs,--parallel", o.max_num_seqs, "sequences that run at the same time")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens,--batch-size", o.max_num_batched_tokens,
                 "rows of one step: decoding sequences first, then prompt chunks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--kv-cache-size", o.kv_cache_bytes,
                 "memory for the KV cache (4GiB, 512MiB); 0: as needed, at most a quarter of the free memory")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_flag_callback(
      "--no-kv-cache", [&o] { o.kv_cache = false; },
      "recompute everything for each token: the baseline that the cache is measured against");
  app.add_flag_callback(
      "--no-chunked-prefill", [&o] { o.chunked_prefill = false; }, "compute each prompt as one chunk, whatever waits");
}

}  // namespace quire
