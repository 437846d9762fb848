#include "engine/ranks/processes_executor.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <new>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/remote/messages.h"
#include "engine/remote/wire_results.h"
#include "engine/step/wire.h"

namespace quire {
namespace {

// What only processes of a group say, besides what a remote executor is told (engine/remote/messages.h).
constexpr char kBeat[] = "beat", kEnd[] = "end";

// A rank without orders waits so long: rank 0 sends some at least every half second (engine.cc), but may be busy with a client.
constexpr double kOrderPatience = 30;  // seconds

}  // namespace

double rank_patience(double given, bool stages) {
  if (given > 0) return given;
  return stages ? 30 : 2;
}

ProcessesExecutor::ProcessesExecutor(ProcessGroup& group, double patience, const ModelConfig& config,
                                     const Weights& weights, const CacheShape& shape, const CpuBackend& cpu, Team& team,
                                     Activations activations, const DecoderLimits& limits, const StageCut& stages)
    : group_(group),
      has_stages_(!stages.layers.empty()),
      parts_(has_stages_ ? RankParts(shape.layout, stage_layouts(shape.layout, stages.layers))
                         : RankParts(shape.layout, group.ranks())),
      communicator_(group, team),
      link_(group),
      backend_(has_stages_ ? CpuBackend(cpu, team) : CpuBackend(cpu, team, communicator_)),
      local_(config, weights, {parts_.of(group.rank()), shape.units, shape.states}, backend_, activations,
             has_stages_ ? stage_limits(limits, group.rank() == group.ranks() - 1) : limits,
             has_stages_ ? StageWork{stages.layers[static_cast<size_t>(group.rank())], &link_, stages.micro_batches}
                         : StageWork{}) {
  answer_beat();  // all have loaded the model
  group_.set_patience(patience, std::max(patience, kOrderPatience));
}

ProcessesExecutor::~ProcessesExecutor() {
  if (group_.rank() > 0 || !lost_.empty()) return;
  try {
    order(kEnd, Json::object());
    group_.close();
  } catch (const std::exception&) {  // a rank is gone, and nobody waits for anything
  }
}

// Rank 0 and the others fail together.
template <class Work>
void ProcessesExecutor::attempt(const Work& work) {
  if (!lost_.empty()) throw no_resource("{}", lost_);
  try {
    return work();
  } catch (const std::bad_alloc&) {
    lost_ = "it is out of memory";
  } catch (const std::exception& e) {
    lost_ = e.what();
  }
  group_.fail(lost_);
  throw no_resource("{}", lost_);
}

void ProcessesExecutor::order(const char* what, Json json, std::span<const std::byte> bytes) {
  json[kDo] = what;
  group_.send(encode({.number = ++orders_, .json = std::move(json), .bytes = bytes}));
}

void ProcessesExecutor::launch(const ForwardInput& input) {
  attempt([&] {
    order(kPass, to_json(input));
    local_.launch(input);
    if (has_stages_) take_outputs(input.by_drafter);
  });
}

void ProcessesExecutor::commit(const CacheChanges& changes) {
  attempt([&] {
    order(kCommit, to_json(changes));
    local_.commit(changes);
  });
}

void ProcessesExecutor::read(const CachePlace& place, std::span<std::byte> to) {
  assert(to.size() == place.size);
  if (place.of_state && !has_stages_) return local_.read(place, to);  // all ranks have the same
  attempt([&] {
    order(kRead, to_json(place));
    share_unit(place, to);
  });
}

void ProcessesExecutor::write(const CachePlace& place, std::span<const std::byte> bytes) {
  assert(bytes.size() == place.size);
  attempt([&] {
    order(kWrite, to_json(place), bytes);
    take(place, bytes);
  });
}

void ProcessesExecutor::beat() {
  attempt([&] {
    order(kBeat, Json::object());
    answer_beat();
  });
}

void ProcessesExecutor::follow() {
  attempt([&] {
    std::vector<std::byte> message;
    do group_.receive(message);
    while (carry_out(message));
    group_.close();
  });
}

// false: it is the last one.
bool ProcessesExecutor::carry_out(std::span<const std::byte> encoded) {
  Message message = decode(encoded);
  assert(message.number == orders_ + 1);
  orders_ = message.number;
  const JsonField json(std::move(message.json), "an order");
  const auto what = json.get<std::string>(kDo);
  if (what == kPass) {
    local_.launch(read_forward(json).input);
    if (has_stages_) send_output();
  } else if (what == kCommit) {
    local_.commit(read_changes(json));
  } else if (what == kRead) {
    share_unit(read_place(json), {});
  } else if (what == kWrite) {
    take(read_place(json), message.bytes);
  } else if (what == kBeat) {
    answer_beat();
  } else {
    assert(what == kEnd);
    return false;
  }
  return true;
}

// Every rank sends its parts. to: all of them; empty: they are not wanted here.
void ProcessesExecutor::share_unit(const CachePlace& place, std::span<std::byte> to) {
  std::vector<size_t> sizes(static_cast<size_t>(group_.ranks()));
  own_part_.clear();
  parts_.for_each(place, [&](int rank, const CachePlace& part, size_t) {
    sizes[static_cast<size_t>(rank)] += part.size;
    if (rank != group_.rank()) return;
    own_part_.resize(own_part_.size() + part.size);
    local_.read(part, std::span(own_part_).last(part.size));
  });
  all_parts_.resize(std::reduce(sizes.begin(), sizes.end()));
  group_.exchange(own_part_, sizes, all_parts_);
  if (to.empty()) return;
  std::vector<size_t> next(sizes.size());  // where each rank's next part lies
  std::exclusive_scan(sizes.begin(), sizes.end(), next.begin(), size_t{0});
  const auto own = static_cast<size_t>(group_.rank());
  std::ranges::copy(own_part_, all_parts_.begin() + static_cast<ptrdiff_t>(next[own]));
  std::ranges::fill(to, std::byte{0});
  parts_.for_each(place, [&](int rank, const CachePlace& part, size_t at) {
    size_t& from = next[static_cast<size_t>(rank)];
    std::copy_n(all_parts_.begin() + static_cast<ptrdiff_t>(from), part.size, to.begin() + static_cast<ptrdiff_t>(at));
    from += part.size;
  });
}

void ProcessesExecutor::take(const CachePlace& place, std::span<const std::byte> bytes) {
  if (place.of_state && !has_stages_) return local_.write(place, bytes);
  parts_.for_each(place, [&](int rank, const CachePlace& part, size_t at) {
    if (rank == group_.rank()) local_.write(part, bytes.subspan(at, part.size));
  });
}

// To rank 0: its size, and the output as a message.
void ProcessesExecutor::send_output() {
  Message message;
  write_output(local_.wait(), message);
  const std::vector<std::byte> encoded = encode(message);
  const std::array<uint64_t, 1> size = {encoded.size()};
  group_.send_to(0, std::as_bytes(std::span(size)));
  group_.send_to(0, encoded);
}

// The last rank's output becomes that of all. The bytes that each has read add up; a drafter reads none.
void ProcessesExecutor::take_outputs(bool by_drafter) {
  uint64_t expert_bytes = local_.wait().expert_bytes;
  for (int rank = 1; rank < group_.ranks(); ++rank) {
    std::array<uint64_t, 1> size{};
    group_.receive_from(rank, std::as_writable_bytes(std::span(size)));
    message_.resize(size[0]);
    group_.receive_from(rank, message_);
    read_output(decode(message_), output_, logits_);
    expert_bytes += output_.expert_bytes;
  }
  output_.expert_bytes = by_drafter ? 0 : expert_bytes;
}

void ProcessesExecutor::answer_beat() {
  const std::array<std::byte, 1> mine{};
  std::vector<std::byte> all(static_cast<size_t>(group_.ranks()));
  group_.exchange(mine, std::vector<size_t>(all.size(), 1), all);
}

}  // namespace quire
