#include "text/tokenizer/bpe.h"

#include <algorithm>

#include "base/text/utf8.h"

namespace quire {
namespace {

constexpr uint32_t kNoRank = ~uint32_t{0};

uint64_t scramble(uint64_t x) {  // splitmix64's finalizer
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t i = scramble(key) & mask;
  while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
  return i;
}

void MergeTable::reserve(size_t merges) {
  size_t size = 16;
  while (size < merges * 2) size *= 2;
  if (size <= slots_.size()) return;
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(size, Slot{});
  for (const Slot& s : old) {
    if (s.key != kEmpty) slots_[slot_of(s.key)] = s;
  }
}

void MergeTable::set(int32_t left, int32_t right, Merge merge, bool replace) {
  reserve(used_ + 1);
  const uint64_t key = pair_key(left, right);
  Slot& slot = slots_[slot_of(key)];
  if (slot.key == kEmpty) {
    slot = {key, merge};
    ++used_;
  } else if (replace) {
    slot.merge = merge;
  }
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  return slot.key == kEmpty ? nullptr : &slot.merge;
}

namespace {

// Short words: scan all pairs for each merge. That takes at most 32 * 31 / 2 steps and no heap.
constexpr size_t kShort = 32;

void merge_short(const MergeTable& table, std::vector<int32_t>& ids, BpeScratch& scratch) {
  std::array<uint32_t, kShort> ranks;
  std::array<int32_t, kShort> merged;
  size_t n = ids.size();
  const auto look_up = [&](size_t i) {
    ++scratch.operations;
    const MergeTable::Merge* merge = table.find(ids[i], ids[i + 1]);
    ranks[i] = merge ? merge->rank : kNoRank;
    merged[i] = merge ? merge->id : 0;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + (n - 1)) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    ids[best] = merged[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1 < n - 1 ? i + 1 : i];
      merged[i] = merged[i + 1 < n - 1 ? i + 1 : i];
    }
    --n;
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.resize(n);
}

}  // namespace

void bpe_merge(const MergeTable& table, std::vector<int32_t>& ids, BpeScratch& scratch) {
  if (ids.size() < 2) return;
  if (ids.size() <= kShort) return merge_short(table, ids, scratch);
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap =
      scratch.heap;  // rank << 32 | position: the smallest is the best pair, the leftmost of equals
  const auto later = std::greater<uint64_t>();
  const auto n = static_cast<int32_t>(ids.size());
  symbols.resize(ids.size());
  heap.clear();
  const auto look_up = [&](int32_t i) {
    BpeScratch::Symbol& s = symbols[static_cast<size_t>(i)];
    ++scratch.operations;
    const MergeTable::Merge* merge = s.next < 0 ? nullptr : table.find(s.id, symbols[static_cast<size_t>(s.next)].id);
    s.rank = merge ? merge->rank : kNoRank;
    s.merged = merge ? merge->id : 0;
    return merge != nullptr;
  };
  const auto entry = [&](int32_t i) {
    return (static_cast<uint64_t>(symbols[static_cast<size_t>(i)].rank) << 32) | static_cast<uint32_t>(i);
  };
  for (int32_t i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1, kNoRank, 0};
  }
  for (int32_t i = 0; i + 1 < n; ++i) {
    if (look_up(i)) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t i) {
    if (i < 0 || !look_up(i)) return;
    heap.push_back(entry(i));
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    ++scratch.operations;
    std::pop_heap(heap.begin(), heap.end(), later);
    const uint64_t best = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(best & 0xFFFFFFFF);
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.id < 0 || left.rank != best >> 32) continue;  // merged already, or its neighbour has changed
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.merged;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = at;
    right.id = -1;
    push(left.previous);
    push(at);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    ids.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

void BpeModel::find_joints(const std::vector<std::string_view>& symbol_texts) {
  const bool has_all_bytes =
      byte_fallback && std::none_of(byte_tokens.begin(), byte_tokens.end(), [](TokenId id) { return id < 0; });
  // Unknown tokens fuse across a cut, and affixes depend on where a word begins and ends.
  if (!has_all_bytes || !continuing_prefix.empty() || !word_suffix.empty()) return;
  std::vector<uint64_t> bits(size_t{1} << 14);  // 2^20 bits: vocabularies join about 10,000 pairs
  std::vector<bool> is_byte_token(symbol_texts.size());
  for (TokenId id : byte_tokens) is_byte_token[static_cast<size_t>(id)] = true;
  bool can_cut = true;  // not if bytes join: the characters do not show it
  merges.for_each([&](int32_t left, int32_t right, const MergeTable::Merge&) {
    can_cut = can_cut && !is_byte_token[static_cast<size_t>(left)] && !is_byte_token[static_cast<size_t>(right)];
    const std::string_view l = symbol_texts[static_cast<size_t>(left)], r = symbol_texts[static_cast<size_t>(right)];
    if (l.empty() || r.empty()) return;
    if (raw_bytes && (!is_utf8(l) || !is_utf8(r))) {
      can_cut = false;
      return;
    }
    size_t last = l.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(l[last]) & 0xC0) == 0x80) --last;
    size_t first = 0;
    const uint64_t bit =
        scramble(pair_key(static_cast<int32_t>(utf8_next(l, last)), static_cast<int32_t>(utf8_next(r, first)))) &
        ((bits.size() * 64) - 1);
    bits[bit / 64] |= uint64_t{1} << (bit % 64);
  });
  if (can_cut) joints = std::move(bits);
}

bool BpeModel::may_join(char32_t left, char32_t right) const {
  const uint64_t bit =
      scramble(pair_key(static_cast<int32_t>(left), static_cast<int32_t>(right))) & ((joints.size() * 64) - 1);
  return (joints[bit / 64] >> (bit % 64)) & 1;
}

size_t BpeModel::next_cut(std::string_view word, size_t begin) const {
  if (joints.empty()) return word.size();
  size_t at = begin;
  char32_t left = utf8_next(word, at);
  while (at < word.size()) {
    const size_t here = at;
    const char32_t right = utf8_next(word, at);
    if (!may_join(left, right)) return here;
    left = right;
  }
  return word.size();
}

void BpeModel::first_symbols_of(std::string_view word, std::vector<int32_t>& ids) const {
  if (byte_level) {
    for (char c : word) {
      const int32_t id = first_symbols[static_cast<unsigned char>(c)];
      if (id >= 0) ids.push_back(id);
    }
    return;
  }
  bool pending_unk = false;
  std::string spelled;
  for (size_t at = 0; at < word.size();) {
    const size_t length = std::min(utf8_length(word[at]), word.size() - at);
    const std::string_view character = word.substr(at, length);
    std::string_view text = character;
    if ((at > 0 && !continuing_prefix.empty()) || (at + length == word.size() && !word_suffix.empty())) {
      spelled = at > 0 ? continuing_prefix : "";
      spelled += character;
      if (at + length == word.size()) spelled += word_suffix;
      text = spelled;
    }
    at += length;
    if (const auto found = symbols.find(text); found != symbols.end()) {
      if (pending_unk) ids.push_back(*unk);
      pending_unk = false;
      ids.push_back(found->second);
      continue;
    }
    if (byte_fallback && std::all_of(text.begin(), text.end(),
                                     [&](char c) { return byte_tokens[static_cast<unsigned char>(c)] >= 0; })) {
      // A pending unknown token stays pending: the library writes it after the bytes.
      for (char c : text) ids.push_back(byte_tokens[static_cast<unsigned char>(c)]);
      continue;
    }
    if (!unk) continue;
    if (pending_unk && !fuse_unk) ids.push_back(*unk);
    pending_unk = true;
  }
  if (pending_unk) ids.push_back(*unk);
}

void BpeModel::encode(std::string_view word, BpeScratch& scratch, TokenIds& out) const {
  if (ignore_merges && word.size() <= longest_word) {
    if (const auto found = whole_words.find(word); found != whole_words.end()) {
      out.push_back(found->second);
      return;
    }
  }
  std::vector<int32_t> ids;
  ids.reserve(word.size());
  first_symbols_of(word, ids);
  bpe_merge(merges, ids, scratch);
  for (int32_t id : ids) {
    if (id < vocabulary_size) {
      out.push_back(id);
    } else {
      const TokenIds& tokens = extra[static_cast<size_t>(id - vocabulary_size)];
      out.insert(out.end(), tokens.begin(), tokens.end());
    }
  }
}

}  // namespace quire
