// The engine: loads a model and answers any number of requests at a time, batching them continuously.
//
//   quire::Engine engine({.model = "smollm2"});
//   quire::Request request{.prompt = engine.encode("The sea"), .sampling = {.temperature = 0, .max_tokens = 32}};
//   engine.generate(request, [](const quire::Output& out) { std::cout << out.text; });
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/constraint.h"
#include "quire/error.h"
#include "quire/page_observer.h"
#include "quire/sampling_params.h"
#include "quire/types.h"

namespace quire {

// Bounds of EngineOptions. Times are in seconds.
inline constexpr int kMaxAdapterRank = 4096, kMaxAdapters = 4096, kMaxThreads = 1024, kMaxNumSeqs = 1 << 16,
                     kMaxNumBatchedTokens = 1 << 20, kMostSpeculativeTokens = 64;

// What drafts tokens in speculative decoding. "recent" is part of --speculative corpus and auto.
inline constexpr std::array<std::string_view, 9> kDrafters{"ngram",      "corpus", "recent", "lookahead", "draft",
                                                           "early-exit", "medusa", "eagle",  "mtp"};

// Values of EngineOptions; the flags of the programs have their names in lower case.
enum class SchedulerKind : uint8_t {
  kContinuous,
  kStatic,  // finish a whole batch before starting the next (for comparison)
};
// Speculative decoding (docs/speculative.md): off, the drafter, or auto: ngram, recent answers, and what the options name,
// or the model's layer for multi-token prediction. The drafters are in the order of kDrafters.
enum class Speculation : uint8_t {
  kOff,
  kAuto,
  kNgram,
  kCorpus,
  kRecent,
  kLookahead,
  kDraft,
  kEarlyExit,
  kMedusa,
  kEagle,
  kMtp
};
enum class DraftAcceptance : uint8_t {
  kExact,  // the answers are those without speculation, to the bit
  // Sampled answers follow the same distribution with other random numbers, and drafts of models and heads are right more
  // often (docs/speculative.md).
  kRejection,
};
// How to choose among the kernels' loops for the same work; results are the same.
enum class TuneMode : uint8_t {
  kOff,    // the built-in choice
  kAuto,   // the fastest, measured at the first start on this machine
  kForce,  // measure again
};

// What EngineOptions::trace_out has of each step.
enum class TraceDetail : uint8_t {
  kSteps,       // its phases
  kOperations,  // and the operations of its forward pass
};

// EngineOptions::expert_bytes: all experts are in memory.
inline constexpr size_t kAllExperts = SIZE_MAX;

// EngineOptions::gpu_layers: all layers, or the most that fit in the device's memory.
inline constexpr int kAllGpuLayers = -1, kAutoGpuLayers = -2;
// EngineOptions::cpu_moe_layers: all layers.
inline constexpr int kAllCpuMoeLayers = -1;

inline constexpr double kMinTpotTarget = 0.001, kMaxTpotTarget = 1e3, kMaxTtftTarget = 1e6;

// A LoRA adapter of a model: a PEFT directory or a GGUF file (docs/adapters.md). Requests name it.
struct AdapterOption {
  std::string name, path;
};

// A control vector of a model: a GGUF file of llama.cpp (docs/adapters.md).
struct ControlVectorOption {
  std::string path;
  double scale = 1;
};

struct AdapterInfo {
  std::string name, path;
  int rank = 0;
  size_t bytes = 0;  // that it takes in memory, at most
};

class ProcessGroup;  // opaque

struct EngineOptions {
  std::string model = {};               // a name from the registry, a .gguf file, or a Hugging Face directory
  std::string kernels = "auto";         // auto, reference, avx2, avx2vnni, avx512, avx512bf16, amx
  std::string device = "cpu";           // cpu; cuda or cuda:N: an NVIDIA GPU; for ranks cuda:0,cuda:2 (docs/cuda.md)
  double gpu_memory_utilization = 0.9;  // the part of a GPU's free memory that may be taken
  std::string activations = "auto";     // auto, f32, bf16, int8, int8x2: how the inputs of linear layers are rounded
  std::string kv_cache_dtype =
      "auto";       // auto, bf16, f16, f32, fp8, int4, int8; auto is bf16, or f32 with activations f32
  int threads = 0;  // 0: one per core that this process may use
  // Teams of threads, or devices, that share each layer's outputs and heads (docs/scale.md); the answers are the same.
  int tensor_parallel_size = 1;
  // Stages, each with some of the layers, that work on a step one after the other; the answers are the same. CPU only; not
  // together with tensor_parallel_size.
  int pipeline_parallel_size = 1;
  std::string numa = "auto";  // ranks and stages, and what they read, each on NUMA nodes of their own: auto, off
  // With stages: a step of twice as many rows, or more, is cut into micro-batches of at least so many.
  int micro_batch_rows = 32;
  // With a device: so many of the last layers, and the output, are the device's; the CPU has the others. They work like stages.
  // 0: the CPU has all, and the device is not opened.
  int gpu_layers = kAllGpuLayers;
  // With a device: the experts of so many of the model's first layers stay in the host's memory, and the CPU computes them
  // (docs/cuda.md). Those of layers that the CPU has are there anyway.
  int cpu_moe_layers = 0;
  int max_model_len = 0;  // tokens of prompt plus answer; 0: the model's limit, reduced to what the cache can hold
  int max_num_seqs = 64;  // sequences that run concurrently
  // Rows (tokens) per step: one for each decoding sequence, the rest for prompts. At least max_num_seqs.
  int max_num_batched_tokens = 512;
  // 0: enough for max_num_seqs sequences of max_model_len, but at most half of the available memory (all of
  // memory_bytes if that is set), and at least one sequence.
  size_t kv_cache_bytes = 0;
  bool kv_cache = true;         // false: recompute everything for each token (a baseline for comparison)
  bool chunked_prefill = true;  // false: compute each prompt in one step, whatever its length
  SchedulerKind scheduler = SchedulerKind::kContinuous;
  // Take tokens that a constraint leaves no choice about without sampling them: the same answers, sooner.
  bool forced_tokens = true;
  // On a GPU, draw tokens there, or bring only the logits that decide to the host: the same answers, sooner (docs/cuda.md).
  bool device_sampling = true;
  // On a GPU, start a step of decoding while the last one runs, where nothing but its tokens is unknown: the same answers, sooner
  // (docs/cuda.md).
  bool run_ahead = true;
  Speculation speculative = Speculation::kOff;     // the same answers, in fewer steps
  std::string draft_model = {};                    // as `model`, with the same vocabulary
  std::string eagle_head = {}, medusa_heads = {};  // a safetensors file, or a folder with one
  std::string speculative_corpus = {};             // a text file
  std::string draft_vocabulary = {};  // a safetensors file of token ids by frequency; drafters use the first 8192
  int early_exit_layers = 0;          // 0: four fifths of the model's
  int num_speculative_tokens = 8;     // most drafted tokens of a sequence in a step
  DraftAcceptance speculative_acceptance = DraftAcceptance::kExact;
  bool speculate_always = false;  // draft as much as allowed, whether it pays or not (for comparison)

  double tpot_target = 0.05;  // seconds per step, while answers are being generated; limits prompt rows in a step
  double ttft_target = 1.0;   // seconds a prompt may wait before only tpot_target limits prompt rows (docs/serving.md)

  bool prefix_cache = true;   // keep computed pages and reuse them for prompts with the same beginning
  size_t memory_bytes = 0;    // for everything; 0: what the cgroup or the host has available, less a margin
  size_t reserved_bytes = 0;  // the part of memory_bytes for the host program and constraint_bytes; at least 64 MiB
  size_t constraint_bytes = size_t{128} << 20;  // for the grammars of constraints and their automata
  size_t host_cache_bytes = 0;                  // memory for pages evicted from the KV cache
  std::string cache_dir = {};                   // a folder that keeps pages across restarts; empty: none
  size_t cache_bytes = 0;                       // size limit of cache_dir, or of a shared folder; 0: 4 GiB
  // In place of cache_dir, where replicas share pages (docs/shared-cache.md): file:///FOLDER, or the URL of a Redis server.
  std::string shared_cache = {};

  std::vector<AdapterOption> adapters = {};  // loaded with the model
  size_t adapter_bytes = 0;                  // memory for adapters that are loaded later: Engine::add_adapter()
  int max_adapters = 0;       // and memory for so many that change all they can, with max_adapter_rank, in float32
  int max_adapter_rank = 64;  // of those that are loaded later
  std::vector<ControlVectorOption> control_vectors = {};  // their sum changes all answers
  int control_first_layer = 1, control_last_layer = 0;  // which layers they change, counted from 0; last 0: to the end

  bool executor_process = false;  // compute in a child process; the answers are the same
  // Processes that compute this model together, this one among them (docs/scale.md): tensor_parallel_size ranks, or
  // pipeline_parallel_size stages.
  // Only rank 0 makes an engine. null: this process computes alone.
  std::shared_ptr<ProcessGroup> processes = {};
  // Seconds that they wait for one that does not answer; 0: 2, or with stages, which compute many layers without a word, 30.
  double rank_timeout = 0;
  // Called once, by the engine's thread, when what computes is gone for good, and why: another process has failed. All requests
  // have ended with kLost, as do those that come later.
  std::function<void(std::string_view why)> on_lost = {};
  std::string record = {};                           // a file that gets every step, for `quire replay`; empty: none
  std::shared_ptr<PageObserver> page_observer = {};  // hears which pages the prefix cache has; empty: nobody
  std::string trace_out = {};  // a file that gets a trace of steps and requests (docs/tracing.md); empty: none
  size_t trace_bytes = size_t{256} << 20;  // its limit, at least 64 KiB: there the trace ends, and the engine goes on
  TraceDetail trace_detail = TraceDetail::kOperations;

  // Mixtures of experts (docs/serving.md): memory for experts, at least for those that one token chooses. The others are read
  // from a file when tokens choose them; the answers are the same. 0: all experts if they fit in memory, else what is left
  // for them.
  size_t expert_bytes = 0;
  // A folder that keeps packed weights, so that the next start maps them (docs/serving.md); empty: none.
  std::string pack_cache = {};
  TuneMode tune = TuneMode::kAuto;
  std::string tuning_file = {};  // where measurements are kept (docs/performance.md); empty: none are made
  // Called now and then (while weights are loaded, at most ten times a second) by the thread that constructs the engine.
  // Must not throw.
  std::function<void(const LoadProgress&)> on_load = {};

  std::string chat_template = {};         // Jinja source that replaces the model's own; empty: the model's
  std::string chat_template_kwargs = {};  // a JSON object: variables of every chat template; a request's own win
};

struct ModelInfo {
  std::string name;                                  // EngineOptions::model
  std::string architecture;                          // llama, mistral, qwen2, …
  std::string quantization;                          // type of most weights: Q4_1, BF16, …
  std::string kernels, activations, kv_cache_dtype;  // in force; never "auto"
  int threads = 0;
  int ranks = 1;   // EngineOptions::tensor_parallel_size
  int stages = 1;  // EngineOptions::pipeline_parallel_size
  int vocab_size = 0, layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int gpu_layers = 0;      // of the layers, those that a device with memory of its own computes
  int cpu_moe_layers = 0;  // the model's first ones, if the CPU computes experts of the device's layers; else 0
  int max_model_len = 0;
  bool generates = true;             // false: encoders and classifiers, which only pool
  Pooling pooling = Pooling::kNone;  // how the model makes embeddings or scores; kNone: its files do not say
  int embedding_size = 0;            // numbers in Output::embedding
  int labels = 0;                    // the classes of a classifier, whose results are scores; 0: embeddings
  Score score = Score::kRaw;         // what a classifier's scores mean
  // Pages of the KV cache, each for page_tokens tokens in one group of layers. Layers with equal windows form a group, or
  // several. A model whose layers all keep every token usually has one.
  int kv_pages = 0, page_tokens = 0, kv_groups = 1;
  int kv_states = 0;     // states of recurrent layers: of running sequences, and checkpoints
  int max_adapters = 0;  // those loaded with the model, and EngineOptions::max_adapters
  uint64_t parameters = 0;
  size_t weight_bytes = 0;  // as packed in memory; of the CPU and a device together; of several devices, of the first
  size_t decode_bytes = 0;  // weights read to decode one token
  // Experts that are read from a file when tokens choose them: those that memory holds at a time, and what it takes, which
  // is part of weight_bytes. 0: all weights are in memory.
  int expert_slots = 0;
  size_t expert_bytes = 0;
  size_t kv_bytes_per_token = 0;     // in the layers that keep every token
  size_t kv_bytes_per_sequence = 0;  // in the others, of a sequence of max_model_len: windows and states
  size_t kv_cache_bytes = 0;
  // The whole memory budget; activations (including logits and sampling); buffers of the page store; everything else
  // outside weights and KV cache.
  size_t memory_bytes = 0, activation_bytes = 0, page_store_bytes = 0, other_bytes = 0;
  SamplingDefaults sampling_defaults = {};  // recommended by the model's authors; the engine itself ignores them
};

enum class FinishReason : uint8_t {
  kNone,       // not finished
  kStop,       // end-of-sequence token, stop token or stop string
  kLength,     // max_tokens or the context length
  kCancelled,  // cancel(), or the engine is shutting down
  kTimeout,    // Request::timeout
  kDeadEnd,    // no token satisfies Request::constraint together with the request's bans; see Output::error
  kRefused,    // Request::constraint needs more steps or memory than it may have; see Output::error
  kError,      // see Output::error
  kLost,       // what computes is gone, and the engine can do nothing more; see Output::error
};
std::string_view name(FinishReason reason);  // none, stop, length, cancelled, timeout, dead_end, refused, error, lost

// Ends a thought that becomes too long. Marks are as the answer's text has them with Request::frame_tokens: added tokens
// between the bytes FF and FE.
struct ThoughtBudget {
  int tokens = 0;           // most tokens of an answer's thoughts
  bool inside = false;      // the prompt ends inside a thought
  std::string open, close;  // marks of a thought; not empty
  TokenIds closing;         // come instead of the tokens beyond; they spell `close`, and what may follow it
};

// Finds the stop strings of one choice where not all text is the answer: those in thoughts and calls do not count. It
// sees the text of each token, with frames. The answer ends with the token for which an index of sampling.stop is
// returned, and its text is passed on with the stop string: whoever knows which part is the answer cuts it.
// Runs on threads of the engine, one call at a time.
class StopFinder {
 public:
  virtual ~StopFinder() = default;
  // counts: enough tokens were generated (sampling.min_tokens).
  virtual std::optional<size_t> add(std::string_view text, bool counts) = 0;
  // The answer ends here for another reason; complete: the model ended it.
  virtual std::optional<size_t> end(bool complete) = 0;
};

// Numbers of a prompt that a request gets in place of an answer. Final hidden states are normalised as the output matrix takes
// them, and before any layers that make embeddings. The arrays take memory beyond EngineOptions::memory_bytes.
enum class PromptArray : uint8_t {
  kNone,
  kHiddenStates,  // the final hidden states of all tokens [tokens, hidden]
  kLogits,        // the logits after the last token [vocab]
  kTokenLogits,   // the logits after each token [tokens, vocab]
};

using TokenRuns = std::shared_ptr<const std::vector<TokenIds>>;

struct Request {
  TokenIds prompt;  // not empty
  SamplingParams sampling;
  std::string tenant = {};      // requests are scheduled fairly between tenants (API keys)
  std::string cache_salt = {};  // prefixes are shared only among requests with the same tenant and salt
  int tenant_priority = 0;  // the operator's, the same for all requests of a tenant: lower runs before other tenants
  int priority = 0;         // lower first, within the tenant; then first come, first served
  double timeout = 0;       // seconds from submit until all answers have ended; 0: none
  Pooling pooling = Pooling::kNone;
  PromptArray array = PromptArray::kNone;  // without pooling
  size_t second_text = SIZE_MAX;           // index of the first token of the second text, in a prompt of two
  Constraint constraint = {};              // what the answer matches, if it is not cut short: see Engine::compile()
  // Added tokens appear in the text, special ones whatever skip_special_tokens says, each in a frame of bytes that UTF-8
  // never has (src/text/token_frames.h), so that a reader can tell <tool_call> from text that spells it.
  bool frame_tokens = false;
  std::optional<ThoughtBudget> thought_budget = {};  // needs frame_tokens
  // Called once for each choice. If empty, the engine looks for sampling.stop in all of the text, and cuts there.
  std::function<std::unique_ptr<StopFinder>()> stop_finder = {};
  TokenRuns banned_runs = {};    // replaces sampling.bad_words: Engine::spellings() of them, shared by several requests
  bool speculate = true;         // false: no drafts for this request, whatever EngineOptions::speculative says
  std::string adapter = {};      // name of the adapter that answers; empty: the model itself
  std::string trace_label = {};  // names the request in EngineOptions::trace_out, which has its first 128 bytes
};

// Whether it gets an answer, and not numbers of its prompt.
inline bool wants_answer(const Request& r) { return r.pooling == Pooling::kNone && r.array == PromptArray::kNone; }
// The most prompt tokens that this request may have: its answer, if it has one, needs room for a token.
int longest_prompt(const Request& request, const ModelInfo& model);

struct OutputToken {
  TokenId id = kNoToken;
  float logprob = 0;                                    // if sampling.logprobs is set
  std::vector<std::pair<TokenId, float>> top_logprobs;  // likewise; most probable first
};

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // part of the prompt that came from the prefix cache
  int completion_tokens = 0;  // what this choice has, with the end-of-sequence token
  double ttft_seconds = 0;    // from submit to the first token
  double seconds = 0;         // from submit to the last token
  double queue_seconds = 0;   // from submit to the first step that computed some of it
  int drafted_tokens = 0;     // drafted tokens of this choice that were verified
  int accepted_tokens = 0;    // those of them that were right
};

// A piece of one answer. Concatenating the texts of a choice gives the answer. A piece may carry tokens without text:
// half a character, or text that may be the beginning of a stop string.
struct Output {
  int choice = 0;
  std::string text;
  std::vector<OutputToken> tokens;
  FinishReason finish = FinishReason::kNone;
  std::string stop_reason;            // the request's stop string, or the id of its stop token, that ended the answer
  std::optional<TokenId> stop_token;  // the token that ended the answer, if a token did
  std::string error;                  // with kError, kLost, kRefused and kDeadEnd
  Usage usage;                        // set in the last piece
  // With sampling.prompt_logprobs: the prompt's tokens, in the first output of choice 0. The first logprob is 0.
  std::vector<OutputToken> prompt_logprobs = {};
  // With pooling, in the only output: [embedding_size], normalised to length 1, or the scores of a classifier [labels].
  // With Request::array: that array.
  std::vector<float> embedding = {};
};

// What a drafter did. Drafts count once they are verified.
struct DrafterStats {
  std::string_view name;  // one of kDrafters
  uint64_t complete = 0;  // drafts whose tokens were all right
  // [i]: drafts of more than i tokens, and those of them whose first i + 1 tokens were right. The first counts drafts.
  std::array<uint64_t, kMostSpeculativeTokens> drafted{}, accepted{};
  double seconds = 0;   // spent drafting, whether the drafts were verified or not
  uint64_t errors = 0;  // times that it failed; the answers went on without its drafts

  void count(int tokens, int right);  // a draft of which the first `right` tokens were right
};

// Counters run since the engine started; the others are current values.
struct EngineStats {
  static constexpr int kMostCountedRows = 256;

  int running = 0, waiting = 0;         // sequences
  int kv_pages = 0, kv_pages_used = 0;  // used: by running sequences
  uint64_t steps = 0, preemptions = 0, prompt_tokens = 0, generated_tokens = 0, finished_requests = 0;
  uint64_t forced_tokens = 0;                        // generated where constraints left no choice, so not sampled
  uint64_t drafted_tokens = 0, accepted_tokens = 0;  // drafted tokens that were verified, and those that were right

  // The prefix cache.
  uint64_t prefix_query_tokens = 0;  // prompt tokens looked up
  uint64_t prefix_hit_tokens = 0;    // those of them that were found in the KV cache or the page store
  int kv_pages_idle = 0;             // kept for future prompts, evicted when needed; not counted as used
  int kv_slots_unused = 0;           // token slots of used pages past the ends of running sequences
  uint64_t pages_evicted = 0;        // idle pages evicted
  uint64_t pages_stored_ahead =
      0;                      // idle pages that a GPU's step has not waited for: stored before they had to be evicted
  uint64_t pages_loaded = 0;  // read back from the page store

  // The page store.
  uint64_t store_host_pages = 0, store_disk_pages = 0;  // current
  uint64_t store_dropped = 0;                           // pages not written to disk because the writer fell behind
  uint64_t store_write_failures = 0;                    // pages not written to a full or failing disk
  uint64_t store_damaged = 0;                           // damaged files found and removed
  // Of shared_cache: pages read from it, and those it was asked for and did not have; operations that failed.
  uint64_t shared_hits = 0, shared_misses = 0, shared_errors = 0;
  uint64_t shared_read_bytes = 0, shared_written_bytes = 0;

  // Time and number of steps that only decode, and of steps with prompt rows. decode_bytes: what the decode steps read,
  // the weights once per step, of experts only the chosen ones, and the cached keys, values and states of each row.
  double decode_seconds = 0, prompt_seconds = 0;
  uint64_t decode_steps = 0, prompt_steps = 0;
  double decode_bytes = 0;

  // Experts that steps have chosen in a layer, if not all are in memory: those that were there, and those that were read.
  // Time in which at least one read was under way, and in which computing waited for reads.
  uint64_t expert_hits = 0, expert_reads = 0, expert_read_bytes = 0;
  double expert_read_seconds = 0, expert_wait_seconds = 0;

  // The decode steps: tokens that they gave, their sequences added up, how many had so many rows (the last: or more),
  // and number and time of those that verified drafts.
  uint64_t decode_tokens = 0, decode_sequences = 0;
  std::array<uint64_t, 1 + kMostCountedRows> decode_steps_by_rows{};
  uint64_t verify_steps = 0;
  double verify_seconds = 0;
  std::vector<DrafterStats> drafters;  // those in use

  uint64_t gathered_bytes = 0;      // results that the first of several ranks has received from the others
  uint64_t stage_bytes = 0;         // of rows that stages of this process have sent to the next ones
  uint64_t ahead_steps = 0;         // of `steps`: started while the last one ran
  uint64_t logits_bytes = 0;        // of logits that steps have brought from a GPU to the host
  uint64_t moved_expert_bytes = 0;  // of rows for experts on the CPU, from a GPU and back
};

// Threads, kernels and memory that several engines share. Opaque.
struct Runtime;
// Takes threads, kernels, device, tensor_parallel_size, gpu_layers, gpu_memory_utilization and memory_bytes of the options, and
// nothing else. Throws Error: an option is invalid, the device cannot be used, or less memory is free than asked for.
std::shared_ptr<Runtime> make_runtime(const EngineOptions& options);

// Declared for programs built in this source tree: text/tokenizer/tokenizer.h, text/chat_template.h, engine/memory_plan.h,
// engine/watch/snapshot.h, engine/explain/explanation.h.
class Tokenizer;
class ChatTemplate;
struct ChatInput;
struct TokenPair;
struct MemoryPlan;
struct EngineSnapshot;
struct ExplainRequest;
struct Explanation;

// Thread-safe. Runs one scheduling thread and a team of compute threads.
class Engine {
 public:
  // Loads the model. Throws Error: unknown model, broken file, not enough memory.
  //
  // runtime: shared with other engines; nullptr: one of its own. Engines of one runtime take turns, step by step, and give
  // the answers that they give alone. While it lives, each holds its part of the runtime's memory: at most
  // options.memory_bytes. Without that, its KV cache takes at most half of what is left, or one sequence.
  // options.threads and options.kernels must be those of the runtime, or 0 and auto; its device is used.
  explicit Engine(const EngineOptions& options, std::shared_ptr<Runtime> runtime = nullptr);
  // Ends all requests with kCancelled, including those that callbacks submit meanwhile.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs on the engine's thread, so it must not block; it may call submit() and cancel(). It may throw only
  // std::bad_alloc: the choice then ends with kError, and if reporting that fails too, the error is dropped.
  using Callback = std::function<void(const Output&)>;

  // Queues the request. `callback` receives each choice's outputs in order; the last one has a finish reason.
  // Throws Error if the request can never run: empty prompt, prompt that does not leave room for one token within
  // max_model_len, token ids outside the vocabulary, invalid sampling parameters, an adapter that there is not.
  RequestId submit(Request request, Callback callback);
  // No effect if the request has ended.
  void cancel(RequestId id);
  // Submits the request and waits until all choices have ended.
  void generate(Request request, const Callback& callback);

  // Loads an adapter of the model, between two steps. Later requests can name it. Throws Error: the name is taken, the files
  // cannot be loaded or do not fit the model, EngineOptions::adapter_bytes are used up, or the engine computes in another
  // process.
  void add_adapter(const AdapterOption& adapter);
  // Later requests cannot name it any more. Those that do go on, and its memory is freed with the last of them. Throws Error
  // (kNotFound).
  void remove_adapter(std::string_view name);
  std::vector<AdapterInfo> adapters() const;

  const ModelInfo& info() const;
  EngineStats stats() const;

  // The tokens of a prompt, with the special tokens that the model expects around a text (BOS). Special tokens that are
  // spelled out in `text` become those tokens.
  // This and the following throw Error if the model has no vocabulary.
  TokenIds encode(std::string_view text) const;
  // The text of tokens; ill-formed UTF-8 becomes U+FFFD.
  std::string decode(std::span<const TokenId> ids) const;
  // The tokens of a chat prompt. `messages` is JSON: [{"role": "user", "content": "Hello"}, …]. Throws Error if it is
  // not valid, the model has no chat template, or the template leaves a message out.
  TokenIds encode_messages(std::string_view messages) const;
  bool has_chat_template() const { return chat_template() != nullptr; }
  // The tokens of each word, alone and after a space.
  TokenRuns spellings(const std::vector<std::string>& words) const;

  // Compiles what answers must match; recently compiled constraints are remembered. Throws Error if the source is
  // malformed, not supported exactly, or too large, and if the model has no vocabulary.
  Constraint compile(const ConstraintSource& source) const;

  // For programs built in this source tree. render() is the text of a chat prompt, encode_chat() its tokens. Messages
  // are first brought into the roles and the order that the template takes (text/message_roles.h). require_shown()
  // throws Error if the prompt lacks a part of the chat (text/hidden_parts.h).
  const Tokenizer& tokenizer() const;
  const ChatTemplate* chat_template() const;  // nullptr: the model has none
  std::string render(ChatInput input) const;
  TokenIds encode_chat(ChatInput input) const;
  void require_shown(const ChatInput& input) const;
  // The prompt with which a classifier scores how well the document fits the query. If most_tokens > 0, the longer text
  // is cut until the prompt has at most that many. Throws Error if the vocabulary has no template for two texts.
  TokenPair encode_pair(std::string_view query, std::string_view document, size_t most_tokens) const;
  const MemoryPlan& memory_plan() const;
  // The newest snapshot of what the engine is doing, and a request for the next one, which comes after the step under way.
  // So whoever watches calls this again and again. Number 0: there is none yet.
  EngineSnapshot snapshot() const;
  // The numbers of a forward pass over a short prompt. Runs on the calling thread, between steps, with a cache of its own, so
  // that other answers keep their bits. Throws Error: the request is invalid, memory is short, or another call is running.
  Explanation explain(const ExplainRequest& request) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
