// The engine: a model, its KV cache and a scheduler that many requests share. What the command line, the server and
// embedding programs use.
//
//   quire::Engine engine({.model = "smollm2"});
//   quire::Request request{.prompt = engine.tokenizer().encode("The sea"), .sampling = {.temperature = 0, .max_tokens =
//   32}}; engine.generate(request, [](const quire::Output& out) { std::cout << out.text; });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/sampling_params.h"
#include "quire/types.h"

namespace quire {

class Tokenizer;
class ChatTemplate;
struct ChatInput;

// What EngineOptions may ask for; Engine refuses more.
inline constexpr int kMaxThreads = 1024, kMaxNumSeqs = 1 << 16, kMaxNumBatchedTokens = 1 << 20;
inline constexpr double kMinTpotTarget = 0.001, kMaxTpotTarget = 1e3, kMaxTtftTarget = 1e6;  // seconds

struct EngineOptions {
  std::string model = {};               // a name of the registry, a .gguf file, or a Hugging Face directory
  std::string kernels = "auto";         // auto, reference, avx2, avx2vnni, avx512, avx512bf16, amx
  std::string activations = "auto";     // auto, f32, bf16, int8: what inputs of linears are rounded to
  std::string kv_cache_dtype = "auto";  // auto, f32, f16, bf16; auto: bf16, with --activations f32: f32
  int threads = 0;                      // 0: the cores this process may use
  int max_model_len = 0;  // tokens of prompt and answer together; 0: the model's, cut to what the cache holds
  int max_num_seqs = 64;  // sequences that run at the same time
  int max_num_batched_tokens = 512;  // rows of one step: all decoding sequences, the rest prompt chunks
  // 0: what max_num_seqs sequences of max_model_len need, but at most half of the available memory (all of
  // memory_bytes, if that is given), and at least one sequence.
  size_t kv_cache_bytes = 0;
  bool kv_cache = true;                  // false recomputes everything for each token: the baseline
  bool chunked_prefill = true;           // false: a prompt is one chunk, whatever its length
  std::string scheduler = "continuous";  // or "static": a batch runs to the end of its longest answer; the baseline
  double tpot_target = 0.05;  // seconds a step may take while answers are being written: bounds its prompt chunks
  double ttft_target = 1.0;   // seconds a prompt may wait before tpot_target alone bounds the steps (docs/serving.md)

  bool prefix_cache = true;     // keep finished pages and reuse them for prompts that begin alike
  size_t memory_bytes = 0;      // for everything; 0: what the cgroup or the host has, less a margin
  size_t reserved_bytes = 0;    // of it for the program around the engine: bodies, answers on their way
  size_t host_cache_bytes = 0;  // for pages that had to leave the KV cache
  std::string cache_dir = {};   // a folder that keeps pages across restarts; empty: none
  size_t cache_bytes = 0;       // of files in cache_dir; 0: 4 GiB

  std::string chat_template = {};         // Jinja source, instead of the model's own; empty: the model's
  std::string chat_template_kwargs = {};  // a JSON object: variables for every chat; those of a request win
};

struct ModelInfo {
  std::string name;          // what was asked for
  std::string architecture;  // llama, mistral, qwen2, …
  std::string quantization;  // most weights' type: Q4_1, BF16, …
  std::string kernels, activations, kv_cache_dtype;
  int threads = 0;
  int vocab_size = 0, layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int max_model_len = 0;
  int kv_pages = 0, page_tokens = 0;
  uint64_t parameters = 0;
  size_t weight_bytes = 0;  // as packed in memory
  size_t decode_bytes = 0;  // of weights, read for one token
  size_t kv_bytes_per_token = 0, kv_cache_bytes = 0;
  // All memory, as budgeted: weights, KV cache, activations (with logits and sampling), pages on their way to and from
  // the page store, and everything else.
  size_t memory_bytes = 0, activation_bytes = 0, page_store_bytes = 0, other_bytes = 0;
  SamplingDefaults sampling_defaults = {};  // what the model's authors recommend; requests and flags override it
};

enum class FinishReason : uint8_t {
  kNone,       // goes on
  kStop,       // end-of-sequence token, stop token or stop string
  kLength,     // max_tokens or the context's end
  kCancelled,  // cancel(), or the engine stops
  kTimeout,    // the request's deadline has passed
  kError,      // Output::error says what
};

// What a request without an answer gets instead: one vector for its prompt.
enum class Pooling : uint8_t {
  kNone,  // an answer, no vector
  kMean,  // of the final hidden states of all tokens
  kLast,  // the last token's
};

using TokenRuns = std::shared_ptr<const std::vector<TokenIds>>;

struct Request {
  TokenIds prompt;  // not empty
  SamplingParams sampling;
  std::string tenant = {};      // shares of the machine are fair between tenants (API keys)
  std::string cache_salt = {};  // prefixes are shared only between requests of the same tenant and salt
  int priority = 0;    // lower is earlier; within a priority tenants share fairly, within a tenant first come first
  double timeout = 0;  // seconds from submit to the end of all answers; 0: none
  Pooling pooling = Pooling::kNone;
  TokenRuns banned_runs = {};  // Engine::spellings of bad words, for requests that share them; instead of bad_words
};

struct OutputToken {
  TokenId id = kNoToken;
  float logprob = 0;                                    // with sampling.logprobs
  std::vector<std::pair<TokenId, float>> top_logprobs;  // likewise
};

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // of the prompt, taken from the prefix cache
  int completion_tokens = 0;  // of this choice, an end-of-sequence token included
  double ttft_seconds = 0;    // from submit to the first token
  double seconds = 0;         // from submit to the last
  double queue_seconds = 0;   // from submit to the first step that worked on it
};

// A piece of one answer. The texts of a choice joined are the answer; a piece may have a token and no text yet (half a
// character, the beginning of what may be a stop string).
struct Output {
  int choice = 0;
  std::string text;
  std::vector<OutputToken> tokens;
  FinishReason finish = FinishReason::kNone;
  std::string stop_reason;  // the stop string, or the stop token's id, if one of the request's own ended the answer
  std::optional<TokenId> stop_token;  // the token that ended it, if one did
  std::string error;                  // with kError
  Usage usage;                        // with a finish
  // With sampling.prompt_logprobs, in the first output of choice 0: the prompt's tokens, the first one's logprob being
  // 0.
  std::vector<OutputToken> prompt_logprobs = {};
  // With pooling: [hidden], of length 1 as a vector, in the only output, which has no tokens.
  std::vector<float> embedding = {};
};

using RequestId = uint64_t;

struct EngineStats {
  int running = 0, waiting = 0;         // sequences
  int kv_pages = 0, kv_pages_used = 0;  // used: by running sequences
  uint64_t steps = 0, preemptions = 0, prompt_tokens = 0, generated_tokens = 0, finished_requests = 0;

  // The prefix cache: tokens of prompts looked up, and found in the KV cache or the page store.
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  int kv_pages_idle = 0;       // not counted as used: kept for prompts that may come, given up when needed
  int kv_slots_unused = 0;     // of kv_pages_used: token slots behind the ends of running sequences
  uint64_t pages_evicted = 0;  // idle pages given up
  uint64_t pages_loaded = 0;   // read back from the page store
  uint64_t store_host_pages = 0, store_disk_pages = 0;  // in the store now
  // Pages that the store's disk lost: not written because the writer was behind, by a full or failing disk, damaged.
  uint64_t store_dropped = 0, store_write_failures = 0, store_damaged = 0;

  // Time spent in steps that only decode, and in those with prompt chunks; and what they read: weights once, and the
  // cached keys and values of each row's past.
  double decode_seconds = 0, prompt_seconds = 0;
  uint64_t decode_steps = 0, prompt_steps = 0;
  double decode_bytes = 0;  // read by the decode steps
};

// Runs its own thread. Every member may be called from any thread.
class Engine {
 public:
  // Loads the model. Throws Error: unknown model, broken file, not enough memory.
  explicit Engine(const EngineOptions& options);
  // What still runs ends with kCancelled; so does what callbacks submit meanwhile, which must come to an end.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  using Callback = std::function<void(const Output&)>;

  // Queues the request. The callback is called on the engine's thread, in order for each choice, and for each of the n
  // choices exactly once with a finish reason; it must not block, and may call submit and cancel. It must not throw but
  // std::bad_alloc: its choice then ends with kError, which it is told if it can take that.
  // Throws Error when the request can never run: empty or too long prompt (with the answer's first token, where there
  // is an answer, more than max_model_len), token ids outside the vocabulary, wrong sampling parameters.
  RequestId submit(Request request, Callback callback);
  // No effect when the request has ended.
  void cancel(RequestId id);
  // submit, and wait until all choices have ended.
  void generate(Request request, const Callback& callback);

  const ModelInfo& info() const;
  EngineStats stats() const;
  const Tokenizer& tokenizer() const;         // throws Error when the model has none
  const ChatTemplate* chat_template() const;  // nullptr: the model has none
  // The prompt of a chat: the template with the model's special tokens, then tokenized.
  std::string render(ChatInput input) const;
  TokenIds encode_chat(ChatInput input) const;
  // The tokens of each word, at the beginning of a text and behind a space. Throws as tokenizer().
  TokenRuns spellings(const std::vector<std::string>& words) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
