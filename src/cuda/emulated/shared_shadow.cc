#include "cuda/emulated/shared_shadow.h"

#include <algorithm>

namespace quire::cuda::emulated {
namespace {

constexpr size_t kWordBytes = 4;

int warp_of(int thread) { return thread / 32; }

}  // namespace

void SharedShadow::reset(size_t bytes) {
  ++block_;
  const size_t words = (bytes + kWordBytes - 1) / kWordBytes;
  if (words_.size() < words) words_.resize(words);
  split_.clear();
  readers_.clear();
  for (auto& fences : fences_) fences.clear();
  clocks.reset();
}

SharedShadow::Cell& SharedShadow::word(size_t i) {
  Cell& cell = words_[i];
  if (cell.block != block_) {
    cell = {};
    cell.block = block_;
  }
  return cell;
}

std::array<SharedShadow::Cell, 4>& SharedShadow::split(Cell& cell) {
  if (cell.bytes == 0) {
    std::array<Cell, 4> bytes;
    bytes.fill(cell);
    for (size_t i = 1; i < 4 && cell.readers; ++i) {  // the first keeps the word's
      const Readers copy = readers_[cell.readers - 1];
      readers_.push_back(copy);
      bytes[i].readers = static_cast<uint32_t>(readers_.size());
    }
    split_.push_back(bytes);
    cell.bytes = static_cast<uint32_t>(split_.size());
  }
  return split_[cell.bytes - 1];
}

// Calls f(cell) for the cells of these bytes until it returns a conflict.
template <class Visit>
SharedConflict SharedShadow::visit(size_t at, size_t bytes, Visit&& f) {
  const size_t end = at + bytes;
  while (at < end) {
    Cell& cell = word(at / kWordBytes);
    const size_t first = at % kWordBytes, last = std::min(kWordBytes, first + end - at);
    if (first == 0 && last == kWordBytes && cell.bytes == 0) {
      if (auto conflict = f(cell)) {
        conflict.at = at;
        return conflict;
      }
    } else {
      auto& parts = split(cell);
      for (size_t i = first; i < last; ++i) {
        if (auto conflict = f(parts[i])) {
          conflict.at = at + i - first;
          return conflict;
        }
      }
    }
    at += last - first;
  }
  return {};
}

bool SharedShadow::in_past(const Reader& reader, int thread, const BlockClocks::Past& past) {
  return reader.thread == thread || reader.when < past[reader.warp];
}

void SharedShadow::add_reader(Cell& cell, int thread, int warp) {
  const uint32_t now = clocks.now(warp);
  const auto id = thread < 0 ? kSeveralLanes : static_cast<uint16_t>(thread);
  const Reader added{now, id, static_cast<uint16_t>(warp)};
  const auto add = [&](Reader& known) {
    if (known.when == now && known.thread != id) {
      known.thread = kSeveralLanes;
    } else {
      known = added;
    }
  };
  if (cell.readers) {
    add(readers_[cell.readers - 1][static_cast<size_t>(warp)]);
  } else if (cell.reader.when == 0 || cell.reader.warp == warp) {
    add(cell.reader);
  } else if (cell.reader.when < clocks.past(warp)[cell.reader.warp]) {
    cell.reader = added;  // who is after this read is after that one, too
  } else {
    Readers& all = readers_.emplace_back();
    all[cell.reader.warp] = cell.reader;
    all[static_cast<size_t>(warp)] = added;
    cell.readers = static_cast<uint32_t>(readers_.size());
  }
}

SharedConflict SharedShadow::read(size_t at, size_t bytes, int thread) {
  const int warp = warp_of(thread);
  const BlockClocks::Past& past = clocks.past(warp);
  return visit(at, bytes, [&](Cell& cell) -> SharedConflict {
    if (cell.copying) return {SharedConflict::Kind::kCopying, cell.writer};
    if (cell.written == 0) return {SharedConflict::Kind::kUninitialised};
    if (cell.writer != thread && cell.written >= past[static_cast<size_t>(warp_of(cell.writer))])
      return {SharedConflict::Kind::kRaceWithWrite, cell.writer};
    add_reader(cell, thread, warp);
    return {};
  });
}

SharedConflict SharedShadow::check_write(const Cell& cell, int thread) const {
  const BlockClocks::Past& past = clocks.past(warp_of(thread));
  if (cell.copying) return {SharedConflict::Kind::kCopying, cell.writer};
  if (cell.written && cell.writer != thread && cell.written >= past[static_cast<size_t>(warp_of(cell.writer))])
    return {SharedConflict::Kind::kRaceWithWrite, cell.writer};
  const auto conflict = [&](const Reader& reader) -> SharedConflict {
    if (reader.when == 0 || in_past(reader, thread, past)) return {};
    const int other = reader.thread != kSeveralLanes ? reader.thread : reader.warp * 32;
    return {SharedConflict::Kind::kRaceWithRead, other};
  };
  if (!cell.readers) return conflict(cell.reader);
  for (const Reader& reader : readers_[cell.readers - 1]) {
    if (const auto found = conflict(reader)) return found;
  }
  return {};
}

void SharedShadow::set_written(Cell& cell, int thread) const {
  const auto t = static_cast<size_t>(thread);
  cell.written = clocks.now(warp_of(thread));
  cell.writer = static_cast<uint16_t>(thread);
  cell.fences = t < fences_.size() ? static_cast<uint32_t>(fences_[t].size()) : 0;
  cell.copying = cell.of_box = false;
  cell.reader = {};
  cell.readers = 0;
}

SharedConflict SharedShadow::write(size_t at, size_t bytes, int thread) {
  return visit(at, bytes, [&](Cell& cell) -> SharedConflict {
    if (const auto conflict = check_write(cell, thread)) return conflict;
    set_written(cell, thread);
    return {};
  });
}

SharedConflict SharedShadow::start_copy(size_t at, size_t bytes, int thread) {
  return visit(at, bytes, [&](Cell& cell) -> SharedConflict {
    if (const auto conflict = check_write(cell, thread)) return conflict;
    set_written(cell, thread);
    cell.copying = true;
    return {};
  });
}

void SharedShadow::finish_copy(size_t at, size_t bytes, int thread) {
  visit(at, bytes, [&](Cell& cell) -> SharedConflict {
    set_written(cell, thread);
    return {};
  });
}

void SharedShadow::finish_box(size_t at, size_t bytes) {
  visit(at, bytes, [](Cell& cell) -> SharedConflict {
    cell.copying = false;
    cell.of_box = true;
    return {};
  });
}

void SharedShadow::fence(int thread) {
  const auto t = static_cast<size_t>(thread);
  if (fences_.size() <= t) fences_.resize(t + 1);
  fences_[t].push_back(clocks.now(warp_of(thread)));
}

SharedConflict SharedShadow::read_product(size_t at, size_t bytes, int warp, const BlockClocks::Past& past) {
  return visit(at, bytes, [&](Cell& cell) -> SharedConflict {
    if (cell.copying) return {SharedConflict::Kind::kCopying, cell.writer};
    if (cell.written == 0) return {SharedConflict::Kind::kUninitialised};
    const uint32_t seen = past[static_cast<size_t>(warp_of(cell.writer))];
    if (cell.written >= seen) return {SharedConflict::Kind::kRaceWithWrite, cell.writer};
    // The first fence of the writer after it wrote must be in the past, too.
    const bool fenced = cell.of_box || (cell.writer < fences_.size() && cell.fences < fences_[cell.writer].size() &&
                                        fences_[cell.writer][cell.fences] < seen);
    if (!fenced) return {SharedConflict::Kind::kUnfenced, cell.writer};
    add_reader(cell, -1, warp);
    return {};
  });
}

}  // namespace quire::cuda::emulated
