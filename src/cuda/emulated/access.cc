// The memory of machine.h: checks each access of the running thread, and counts it.
#include "cuda/emulated/access.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/emulated/block.h"
#include "cuda/emulated/machine.h"

namespace quire::cuda::emulated {
namespace {

// What an access is called in messages.
struct AccessName {
  const char* noun;
  const char* verb;
};
constexpr AccessName kReads{"a read", "reads"}, kWrites{"a write", "writes"},
    kCopiesFrom{"an asynchronous copy", "copies"}, kCopiesTo{"an asynchronous copy", "copies to"},
    kMultiplies{"a product", "multiplies by"}, kUsesBarrier{"a barrier", "uses"};

std::string sized(const AccessName& name, size_t bytes, const char* space) {
  return std::string(name.noun) + " of " + std::to_string(bytes) + " bytes of " + space + " memory";
}

std::string hexadecimal(const void* at) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (auto value = reinterpret_cast<uintptr_t>(at); value || text.empty(); value /= 16)
    text.insert(text.begin(), kDigits[value % 16]);
  return "0x" + text;
}

bool is_aligned(const void* at, size_t bytes) {
  return (bytes & (bytes - 1)) != 0 || reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

std::string describe_address(BlockRunner& runner, const void* at) {
  return "address " + hexadecimal(at) + ", " + runner.global().describe(at);
}

[[noreturn]] void fault_of_race(BlockRunner& runner, const void* at, const AccessName& name,
                                const GlobalConflict& conflict) {
  const std::string did = conflict.use == GlobalUse::kRead ? " read" : " wrote";
  if (conflict.earlier_launch)
    runner.fault(std::string("before wait_previous(), it ") + name.verb +
                 " what an earlier launch wrote: " + describe_address(runner, at));
  const std::string who = conflict.thread
                              ? "thread " + std::to_string(*conflict.thread) + did + ", with no barrier between"
                          : conflict.block ? "block number " + std::to_string(*conflict.block) + " of this launch" + did
                                           : "several other blocks of this launch" + did;
  runner.fault(std::string("a race: it ") + name.verb + " what " + who + ": " + describe_address(runner, at));
}

// logs: it is one of a warp's requests.
void check_global(const void* at, size_t bytes, GlobalUse use, const AccessName& name, bool logs = true) {
  BlockRunner& runner = running_block();
  GlobalMemory& global = runner.global();
  if (!global.contains(at, bytes))
    runner.fault(sized(name, bytes, "global") + " out of bounds: " + describe_address(runner, at));
  if (!is_aligned(at, bytes))
    runner.fault(sized(name, bytes, "global") + ", not aligned to them: " + describe_address(runner, at));
  if (use == GlobalUse::kWrite && !runner.thread().waited)
    runner.fault(sized(name, bytes, "global") + " before wait_previous(): " + describe_address(runner, at));
  KernelCounters& counters = runner.counters();
  (use == GlobalUse::kRead ? counters.global_read : counters.global_written) += bytes;
  if (runner.checks().races) {
    const ThreadState& state = runner.thread();
    const GlobalUser user{runner.cluster_index(), state.index, state.waited, runner.shadow().clocks};
    if (const auto conflict = global.use(at, bytes, user, use)) fault_of_race(runner, at, name, *conflict);
  }
  if (logs && runner.checks().requests) {
    const ThreadState& state = runner.thread();
    runner.requests(state.warp())
        .add(use == GlobalUse::kRead ? RequestLog::Kind::kGlobalRead : RequestLog::Kind::kGlobalWrite, state.lane(),
             reinterpret_cast<uintptr_t>(at), bytes);
  }
}

[[noreturn]] void fault_of_conflict(BlockRunner& runner, const SharedConflict& conflict, const AccessName& name) {
  using enum SharedConflict::Kind;
  const ThreadState& by = runner.thread(conflict.other);
  std::string other = "thread " + std::to_string(by.thread);
  if (runner.cluster() > 1) other += " of block " + std::to_string(by.block_of_cluster) + " of the cluster";
  const std::string verb = name.verb,
                    at = " byte " + std::to_string(conflict.at % kMostSharedBytes) + " of shared memory";
  switch (conflict.kind) {
    case kNone:
      break;
    case kUninitialised:
      runner.fault("it " + verb + at + ", which is uninitialised: no thread of the block has written it");
    case kRaceWithRead:
      runner.fault("a race: it " + verb + at + ", which " + other + " read, with no barrier between");
    case kRaceWithWrite:
      runner.fault("a race: it " + verb + at + ", which " + other + " wrote, with no barrier between");
    case kCopying:
      runner.fault("it " + verb + at + ", to which " + other +
                   " copies: it must call wait_copies() before the barrier, or wait_arrivals()");
    case kUnfenced:
      runner.fault("it " + verb + at + ", which " + other + " wrote without fence_shared() before the barrier");
  }
  std::abort();  // not called without a conflict
}

void check(BlockRunner& runner, const SharedConflict& conflict, const AccessName& name) {
  if (conflict) fault_of_conflict(runner, conflict, name);
}

// Returns its offset in the block's shared memory. aligned: to its size.
size_t check_shared(BlockRunner& runner, const void* at, size_t bytes, const AccessName& name, bool aligned = true) {
  const auto shared = runner.shared();
  const auto offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(shared.data());
  if (offset > shared.size() || bytes > shared.size() - offset)
    runner.fault(sized(name, bytes, "shared") + " out of bounds: at byte " +
                 std::to_string(static_cast<std::ptrdiff_t>(offset)) + " of " + std::to_string(shared.size()));
  if (aligned && !is_aligned(at, bytes))
    runner.fault(sized(name, bytes, "shared") + ", not aligned to them: at byte " + std::to_string(offset));
  return offset;
}

void note_request(BlockRunner& runner, RequestLog::Kind kind, size_t offset, size_t bytes) {
  if (!runner.checks().requests) return;
  const ThreadState& state = runner.thread();
  runner.requests(state.warp()).add(kind, state.lane(), offset, bytes);
}

// A barrier of arrivals of one of the cluster's blocks, at the place where the running block's is.
size_t arrivals_offset(BlockRunner& runner, const std::byte* at, int block_of_cluster) {
  if (block_of_cluster < 0 || block_of_cluster >= runner.cluster())
    runner.fault("block " + std::to_string(block_of_cluster) + " of a cluster of " + std::to_string(runner.cluster()));
  if (runner.has_ended(block_of_cluster))
    runner.fault("it arrives at a barrier of block " + std::to_string(block_of_cluster) +
                 " of the cluster, whose threads have ended: sync_cluster() must come before");
  constexpr size_t kBarrierBytes = 8;
  return BlockRunner::shared_begin(block_of_cluster) + check_shared(runner, at, kBarrierBytes, kUsesBarrier);
}

}  // namespace

void read_global(const void* at, size_t bytes) { check_global(at, bytes, GlobalUse::kRead, kReads); }
void write_global(const void* at, size_t bytes) { check_global(at, bytes, GlobalUse::kWrite, kWrites); }

void read_shared(const void* at, size_t bytes) {
  BlockRunner& runner = running_block();
  const size_t offset = check_shared(runner, at, bytes, kReads);
  if (runner.checks().races)
    check(runner, runner.shadow().read(runner.shared_begin() + offset, bytes, runner.thread().index), kReads);
  note_request(runner, RequestLog::Kind::kSharedRead, offset, bytes);
}

void write_shared(const void* at, size_t bytes) {
  BlockRunner& runner = running_block();
  const size_t offset = check_shared(runner, at, bytes, kWrites);
  if (runner.checks().races)
    check(runner, runner.shadow().write(runner.shared_begin() + offset, bytes, runner.thread().index), kWrites);
  note_request(runner, RequestLog::Kind::kSharedWrite, offset, bytes);
}

std::byte* shared_memory(size_t offset) { return running_block().shared().data() + offset; }

void wait_at_barrier(int id, int threads, Site site) { running_block().wait_at_barrier(id, threads, site); }

void wait_previous(Site site) {
  BlockRunner& runner = running_block();
  ThreadState& state = runner.thread();
  state.site = site;
  if (state.waited) runner.fault("wait_previous() a second time, or in a kernel without kWaits");
  state.waited = true;
}

void start_copy(std::byte* to, const std::byte* from, size_t bytes, bool valid) {
  BlockRunner& runner = running_block();
  const size_t offset = check_shared(runner, to, bytes, kCopiesTo);
  if (valid) check_global(from, bytes, GlobalUse::kRead, kCopiesFrom);
  ThreadState& state = runner.thread();
  if (runner.checks().races)
    check(runner, runner.shadow().start_copy(runner.shared_begin() + offset, bytes, state.index), kCopiesTo);
  note_request(runner, RequestLog::Kind::kSharedWrite, offset, bytes);
  state.copies.start(to, valid ? from : nullptr, bytes);
  std::memset(to, 0xFF, bytes);  // NaN, until the thread waits
}

void commit_copies() { running_block().thread().copies.commit(); }

void wait_copies(int groups) {
  BlockRunner& runner = running_block();
  ThreadState& state = runner.thread();
  state.copies.wait(groups, [&](const AsyncCopy& copy) {
    std::memcpy(copy.to, copy.data.data(), copy.bytes);
    if (runner.checks().races)
      runner.shadow().finish_copy(static_cast<size_t>(copy.to - runner.shared_of(0).data()), copy.bytes, state.index);
  });
}

void sync_cluster(Site site) { running_block().sync_cluster(site); }

void init_arrivals(const std::byte* at, int count) {
  BlockRunner& runner = running_block();
  runner.arrivals().init(arrivals_offset(runner, at, runner.thread().block_of_cluster), count);
}
void arrive(const std::byte* at, int block_of_cluster) {
  BlockRunner& runner = running_block();
  runner.arrivals().arrive(arrivals_offset(runner, at, block_of_cluster), 0);
}
void arrive_expecting(const std::byte* at, int bytes) {
  BlockRunner& runner = running_block();
  runner.arrivals().arrive(arrivals_offset(runner, at, runner.thread().block_of_cluster), bytes);
}
void wait_arrivals(const std::byte* at, int parity, Site site) {
  BlockRunner& runner = running_block();
  runner.arrivals().wait(arrivals_offset(runner, at, runner.thread().block_of_cluster), parity, site);
}

void copy_box(const BoxSource& from, int column, int row, std::byte* to, const std::byte* arrivals, uint32_t blocks) {
  BlockRunner& runner = running_block();
  constexpr int kRowBytes = 2 * kBoxColumns, kPieceBytes = 16, kPieceColumns = kPieceBytes / 2;
  const auto bytes = static_cast<size_t>(from.box_rows * kRowBytes);
  const size_t offset = check_shared(runner, to, bytes, kCopiesTo, false);
  if (offset % 1024 != 0)
    runner.fault("copy_box() to byte " + std::to_string(offset) + "; it must be a multiple of 1024");
  if (blocks == 0 || blocks >> runner.cluster() != 0)
    runner.fault("copy_box() to blocks " + std::to_string(blocks) + " of a cluster of " +
                 std::to_string(runner.cluster()));
  std::vector<std::byte> box(bytes);  // zeros
  for (int r = 0; r < from.box_rows && row + r < from.rows; ++r) {
    for (int piece = 0; piece < kBoxColumns / kPieceColumns; ++piece) {
      const int first = column + piece * kPieceColumns, count = std::min(kPieceColumns, from.columns - first);
      if (count <= 0) continue;
      const std::byte* at = from.data + static_cast<size_t>(row + r) * from.stride + 2 * static_cast<size_t>(first);
      check_global(at, 2 * static_cast<size_t>(count), GlobalUse::kRead, kCopiesFrom, false);
      std::memcpy(&box[static_cast<size_t>(r * kRowBytes + (piece ^ r % 8) * kPieceBytes)], at,
                  2 * static_cast<size_t>(count));
    }
    if (runner.checks().requests) runner.counters().global_sectors += kRowBytes / 32;
  }
  if (runner.checks().requests) ++runner.counters().global_requests;
  const int thread = runner.thread().index;
  for (int b = 0; b < runner.cluster(); ++b) {
    if ((blocks >> b & 1) == 0) continue;
    const size_t at = BlockRunner::shared_begin(b) + offset;
    if (runner.checks().races) check(runner, runner.shadow().start_copy(at, bytes, thread), kCopiesTo);
    std::memset(runner.shared_of(b).data() + offset, 0xFF, bytes);  // NaN, until they arrive
    runner.arrivals().start_copy(arrivals_offset(runner, arrivals, b), at, box);
  }
}

void fence_shared() {
  BlockRunner& runner = running_block();
  if (runner.checks().races) runner.shadow().fence(runner.thread().index);
}

uint64_t product_rows(const std::byte* at) {
  BlockRunner& runner = running_block();
  const auto offset = static_cast<size_t>(at - runner.shared().data());
  if (offset % 32 != 0 || offset % 1024 > 96)
    runner.fault("product_rows() of byte " + std::to_string(static_cast<std::ptrdiff_t>(offset)) +
                 " of shared memory; it must be a multiple of 1024, plus 0, 32, 64 or 96");
  return ProductRows::encode(offset);
}

void check_product(const PendingProduct& product, int warp) {
  BlockRunner& runner = running_block();
  for (int n = 0; n < product.columns; ++n) {
    for (int half = 0; half < 2; ++half) {
      const size_t at = product.b.at(n, half);
      check_shared(runner, runner.shared().data() + at, 16, kMultiplies);
      if (runner.checks().races)
        check(runner, runner.shadow().read_product(runner.shared_begin() + at, 16, warp, product.past), kMultiplies);
    }
  }
}

}  // namespace quire::cuda::emulated
