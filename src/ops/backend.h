// What a device must offer for models to run on it: memory, and the operations of a forward pass.
//
// An address in a backend's memory is a handle: `Rows`, `Vector`, `PackedMatrix` and `CacheMemory` carry such addresses, and
// code above this folder hands them on and adds to them, but never follows them. All other arguments (token ids, page
// tables, spans of rows, routing) are ordinary values that the host owns; an operation reads them during the call only.
//
// ops/cpu/ is the backend of this machine's processor. tests/fenced/fenced_backend.h is one whose memory the host cannot
// touch; all golden models run on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attention.h"
#include "ops/backend_memory.h"
#include "ops/experts.h"
#include "ops/input_observer.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/operation_limits.h"
#include "ops/pick.h"
#include "ops/ranks/device_ranks.h"
#include "ops/recurrent.h"
#include "ops/rope_table.h"
#include "ops/rows.h"

namespace quire {

// The operations of one model. They run in the order of the calls, and may still run when a call has returned: finish()
// waits. Not thread-safe. A row's result depends on that row (and its sequence) alone, bit for bit: not on the other rows of
// the call, nor on how rows are cut into calls.
class Operations {
 public:
  virtual ~Operations() = default;

  // Has the backend begin all operations that were called, as one pass, and returns at once. One more pass may be started before
  // finish_first() or finish() has waited for it.
  virtual void start() {}
  // Returns when the pass that was started first has been done. The next one may still run, and until it is done, nobody may touch
  // what it uses.
  virtual void finish_first() { finish(); }
  // Returns when all operations have been done. Before that, nobody may view(), write() or copy() what they use.
  virtual void finish() = 0;
  // Gives up the operations called since the last finish(), for a step that cannot go on: those that have not begun never run, and
  // none runs when it returns. What they would have written is undefined.
  virtual void discard() noexcept = 0;
  // From now on `observer` sees all inputs of linears, on the thread that calls operations; nullptr: nobody does. It must
  // outlive the calls. Results keep their bits.
  virtual void observe_inputs(InputObserver* observer) = 0;
  // to = from, in order with the operations.
  virtual void upload(std::span<const float> from, float* to) = 0;
  // From the backend's memory to the host's, in order with the operations; the bytes are there after finish(). to: part of at least
  // Backend::kLeastPinned bytes from Backend::allocate_host().
  virtual void download(const std::byte* from, std::span<std::byte> to) = 0;

  // ---- Rows

  // x = scale * matrix[ids]. Rows with a negative id are left as they are.
  virtual void embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) = 0;
  // x += scale * matrix[ids]. scratch [rows, x.cols]: overwritten.
  virtual void add_embeddings(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                              const Rows& scratch, const Rows& x) = 0;
  // The norm of x. x and the target may be the same.
  virtual void normalize(const Rows& x, const NormView& norm, const Target& target, int rows) = 0;
  virtual void normalize(const Rows& x, const HeadNorm& norm, const Target& target, int rows) = 0;
  virtual void add(const Rows& x, float scale, const Rows& to, int rows) = 0;  // to += scale * x
  // to += scale * sigmoid(gate) * x. gate: one number per row, overwritten.
  virtual void add_gated(const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) = 0;
  virtual void scale(const Rows& x, float by, int rows) = 0;  // x *= by
  // x = max(0, x - (mean + deviations * standard deviation)) of each row.
  virtual void cut_below(const Rows& x, float deviations, int rows) = 0;
  // x *= the root mean square of `like` over its own, row by row.
  virtual void match_magnitude(const Rows& x, const Rows& like, int rows) = 0;
  // The sum over i of coefficients[i] * x[i], with a coefficient per row and input, to the target.
  virtual void combine(std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) = 0;
  virtual void tanh(const Rows& x, int rows) = 0;
  virtual void soft_cap(const Rows& x, float cap, int rows) = 0;  // x = cap * tanh(x / cap)
  virtual void copy(const Rows& x, const Rows& to, int rows) = 0;
  virtual void gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) = 0;  // to[i] = x[rows[i]]
  virtual void copy_heads(const Rows& x, const HeadColumns& columns, const Rows& y, int rows) = 0;
  virtual void multiply_gate(const Rows& y, const Rows& gate, Nonlinearity f, int rows) = 0;  // y *= f(gate)

  // ---- Linears

  // The normalised rows of x as the linears read them: rounded, and with at most kMostTransforms transforms. They are valid while
  // x stays as it is, until the next call that prepares inputs. `as`: the form for all linears, whatever the model's.
  virtual Inputs prepare(const Rows& x, const NormView& norm, int rows, std::initializer_list<const Linear*> linears,
                         std::optional<Activations> as = {}) = 0;
  // Independent projections of the same rows, at most kMostTogether.
  virtual void project(const Inputs& x, std::span<const Projection> list, int rows) = 0;
  void project(const Inputs& x, const Projection& one, int rows) { project(x, {&one, 1}, rows); }
  // A linear for each head, all of one form and transform. Prepares inputs.
  virtual void project_heads(const HeadProjections& heads, int rows) = 0;
  // Adds low-rank changes to results of linears of the normalised x. Both products have float32 inputs, whatever the model's
  // linears round theirs to. Prepares inputs. inner [sum of the products' rows, the largest rank]: overwritten.
  // This one suits every backend: it goes product by product.
  virtual void add_low_rank(const Rows& x, const NormView& norm, const Rows& inner,
                            std::span<const LowRankProduct> products);

  // ---- Attention

  // The cosines and sines of each span's rows, to the rows of to [.., pairs][2].
  virtual void rotations(std::span<const RotationSpan> spans, const Rows& to) = 0;
  // Each row: norms, clipping, rotation (or rotation before the norms of queries and keys), and the key and value into the
  // cache.
  virtual void position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) = 0;
  virtual void attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) = 0;

  // ---- Mixtures of experts

  // Chooses experts for each row by the router's scores; the next run_experts() goes by it.
  virtual void route(const RouteArgs& args, int rows) = 0;
  // The chosen experts' results, weighted and added in the order of their scores. Prepares inputs. With a source the host
  // writes to memory that it does not compute with meanwhile, so Backend::reads_experts() must hold. Throws what the source
  // throws.
  virtual void run_experts(const ExpertArgs& args, int rows) = 0;
  // Bytes of experts' weights that run_experts() has read in the passes that have been waited for since the last call.
  virtual uint64_t take_expert_bytes() = 0;

  // ---- Recurrent layers

  virtual void convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) = 0;
  virtual void delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                          int rows) = 0;
  virtual void state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                           int rows) = 0;

  // ---- Sampling

  // What the host needs of rows of logits: picks[i] of row i. Returns where the results lie in the backend's memory, one after
  // the other, at a multiple of 16 bytes (Picked); valid until the next call. x stays as it is. The rows are at most
  // OperationLimits::max_picked, and the picks within the limits of ops/pick.h.
  virtual std::byte* pick(const Rows& x, std::span<const Pick> picks) = 0;
  // x[i] = scale * matrix[the token of row rows[i] of the last pick()]: the column that was drawn, or without a draw the best one. A row
  // without one is left as it is.
  virtual void embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale, const Rows& x) = 0;
};

// Limits of a device, as measured.
struct BackendRates {
  double bandwidth = 0;  // bytes per second, read or written
  // Per second, of bf16, FP8 and int8; 0: unknown.
  double multiply_adds = 0, fp8_multiply_adds = 0, int8_multiply_adds = 0;
};

// Functions of the memory may be called from several threads at once, for different memory.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  // What inputs of linears are rounded to unless an option says otherwise.
  virtual Activations default_activations() const = 0;
  // Of a memory of its own: bytes that can be allocated now. nullopt: it allocates the host's.
  virtual std::optional<size_t> own_memory() const = 0;
  // Whether its operations take experts from an ExpertSource.
  virtual bool reads_experts() const { return false; }
  // Whether logits are better picked where they are than brought to the host: the host cannot read them in place.
  virtual bool picks_logits() const { return false; }
  // Its add_low_rank() takes LowRank::folds above 1.
  virtual bool folds_low_rank() const { return false; }
  // Changes when packed matrices get other bytes.
  virtual int packing_version() const = 0;
  // activations: the form of inputs. The backend must outlive the result. Throws Error (kResource).
  virtual std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) = 0;
  // What they allocate.
  virtual size_t operations_bytes(const OperationLimits& limits) const = 0;
  // Makes backends of one kind, of different devices, ranks for one model; this one is ranks[0]. All must outlive the result. What
  // operations then allocate is that of OperationLimits::ranks. nullptr: backends of this kind cannot be.
  virtual std::unique_ptr<DeviceRanks> connect(std::span<Backend* const> ranks) {
    (void)ranks;
    return nullptr;
  }
  // What choices between its kernels depend on, for the file that keeps them (engine/tuner.h): "NVIDIA H200, kernels 1". Empty: there
  // are none, or they are made elsewhere.
  virtual std::string tuned_as() const { return {}; }
  // Names of kinds of linears, and of the kernels that are the fastest for them.
  using KernelChoices = std::map<std::string, std::string>;
  // Takes the choices that are known, and measures those that a model's projections of up to `rows` rows need beyond them, which takes
  // up to seconds. Returns what it measured. Operations that exist, and later ones, go by all of them; results keep their bits.
  // report(done, total): may be empty.
  virtual KernelChoices tune(std::span<const TunedProjection> projections, Activations activations, int rows,
                             const KernelChoices& known, const std::function<void(size_t, size_t)>& report) {
    (void)projections, (void)activations, (void)rows, (void)known, (void)report;
    return {};
  }
  // Takes milliseconds, while no operations run. nullopt: the limits are the processor's (plan/machine_probe.h).
  virtual std::optional<BackendRates> measure_rates() { return {}; }

  // Zeroed memory at a multiple of 64 bytes. Throws Error (kResource). BackendMemory owns what it returns.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void free(std::byte* memory, size_t bytes) = 0;
  // Memory of the host that view() copies to, for HostCopy. A backend whose copies are faster to pinned memory pins so many bytes
  // and more: pinning takes a system call, and copies of a few bytes gain nothing.
  static constexpr size_t kLeastPinned = size_t{64} << 10;
  virtual std::byte* allocate_host(size_t bytes);
  virtual void free_host(std::byte* memory, size_t bytes);
  // An address under which operations can read memory of the host, which stays where it is; nullptr: there is none, and the
  // bytes must be written to memory of the backend.
  virtual const std::byte* share(std::span<const std::byte> host) = 0;
  // Calls fill(host), and writes what it leaves there to `to`. Before, the bytes of `host` are zeros, or what is at `to`.
  using Fill = std::function<void(std::span<std::byte> host)>;
  virtual void write(std::byte* to, size_t bytes, const Fill& fill) = 0;
  // The bytes for the host: where they are, if it can read them there, else a copy in `copy`. Valid as long as both are. The
  // host may change them, which may change the memory or not.
  virtual std::span<std::byte> view(std::byte* from, size_t bytes, HostCopy& copy) = 0;
  // Bytes from memory of the host, and to it. These and copy() may be called while operations run that do not use the memory.
  virtual void upload(std::span<const std::byte> from, std::byte* to);
  virtual void read(std::byte* from, std::span<std::byte> to);
  // Makes upload() and read() as fast as they can be with this memory of the host, until unpin(). false: it cannot, and they are as
  // before. PinnedMemory calls both.
  virtual bool pin(std::span<std::byte> host);
  virtual void unpin(std::span<std::byte> host);
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // to [rows.size()]: these rows of a packed matrix, packed alike. Rows ascend.
  virtual void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) = 0;
};

// Backend::operations_bytes() of a backend that need not exist.
using OperationsBytes = std::function<size_t(const OperationLimits&)>;

// view() of numbers.
inline std::span<float> view_floats(Backend& backend, float* from, size_t count, HostCopy& copy) {
  const auto bytes = backend.view(reinterpret_cast<std::byte*>(from), count * sizeof(float), copy);
  return {reinterpret_cast<float*>(bytes.data()), count};
}

}  // namespace quire
