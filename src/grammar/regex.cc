#include "grammar/regex.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/working_memory.h"

namespace quire::grammar {

// Now and then, while the budget is spent.
void Budget::pause(uint64_t n) const {
  if (n > steps || stop.stop_requested()) exhausted();
  check_work();
}

void Budget::exhausted() const {
  if (stop.stop_requested()) throw no_resource("the compilation of the grammar was stopped");
  throw no_resource("the grammar needs too many steps or states; simplify its patterns, counts or alternatives");
}

RegexStore::RegexStore(const Budget& budget) : budget_(budget) {
  nodes_.push_back({.kind = Kind::kNothing});
  nodes_.push_back({.kind = Kind::kEmpty, .nullable = true});
  members_.push_back(ByteSet::range(0, 255));
  row_of_.resize(2, kUnknown);
  searched_.resize(2, Search::kUnknown);
}

size_t RegexStore::memory() const {
  return nodes_.capacity() * sizeof(Node) + (arguments_.capacity() + row_of_.capacity() + rows_.capacity()) * 4 +
         sets_.capacity() * sizeof(ByteSet) + node_table_.memory() + set_table_.memory() + searched_.capacity();
}

RegexId RegexStore::add(const Node& node, std::span<const RegexId> args) {
  const bool list = node.kind == Kind::kAny || node.kind == Kind::kAll;
  uint64_t hash = mix(static_cast<uint64_t>(node.kind), list ? args.size() : node.a);
  hash = mix(mix(hash, node.b), node.c);
  for (const RegexId argument : args) hash = mix(hash, argument);
  budget_.spend(1 + args.size());
  return node_table_.intern(
      hash,
      [&](uint32_t id) {
        const Node& other = nodes_[id];
        if (other.kind != node.kind || other.b != node.b || other.c != node.c) return false;
        return list ? std::ranges::equal(arguments(other), args) : other.a == node.a;
      },
      [&] {
        if (nodes_.size() >= budget_.nodes) budget_.exhausted();
        nodes_.push_back(node);
        if (list) {
          nodes_.back().a = static_cast<uint32_t>(arguments_.size());
          arguments_.insert(arguments_.end(), args.begin(), args.end());
        }
        row_of_.push_back(kUnknown);
        searched_.push_back(Search::kUnknown);
        return static_cast<uint32_t>(nodes_.size() - 1);
      });
}

RegexId RegexStore::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  uint64_t hash = 0;
  for (const uint64_t word : set.words) hash = mix(hash, word);
  const uint32_t id = set_table_.intern(
      hash, [&](uint32_t i) { return sets_[i] == set; },
      [&] {
        sets_.push_back(set);
        return static_cast<uint32_t>(sets_.size() - 1);
      });
  return add({.kind = Kind::kBytes, .a = id});
}

RegexId RegexStore::literal(std::string_view text) {
  RegexId made = kEmpty;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<unsigned char>(text[i]);
    made = concat(range(byte, byte), made);
  }
  return made;
}

RegexId RegexStore::one_of(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? kNothing : one_of_sorted(texts, 0);
}

// A tree of common beginnings, so that no derivative has to look at all texts.
RegexId RegexStore::one_of_sorted(std::span<const std::string> texts, size_t skip) {
  const std::string& first = texts.front();
  const std::string& last = texts.back();
  size_t same = skip;
  while (same < first.size() && same < last.size() && first[same] == last[same]) ++same;
  const std::string_view common = std::string_view(first).substr(skip, same - skip);
  if (texts.size() == 1) return literal(std::string_view(first).substr(skip));
  std::vector<RegexId> parts;
  for (size_t i = 0; i < texts.size();) {
    size_t end = i + 1;
    if (texts[i].size() == same) {
      parts.push_back(kEmpty);
    } else {
      while (end < texts.size() && texts[end][same] == texts[i][same]) ++end;
      parts.push_back(one_of_sorted(texts.subspan(i, end - i), same));
    }
    i = end;
  }
  return concat(literal(common), any_of(std::move(parts)));
}

RegexId RegexStore::concat(std::initializer_list<RegexId> parts) {
  RegexId made = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) made = concat(parts.begin()[i], made);
  return made;
}

RegexId RegexStore::concat(RegexId head, RegexId tail) {
  if (head == kNothing || tail == kNothing) return kNothing;
  if (head == kEmpty) return tail;
  if (tail == kEmpty) return head;
  if (nodes_[head].kind == Kind::kConcat) {  // right-nested: unrolled, as the chain may be long
    std::vector<RegexId> heads;
    RegexId at = head;
    for (; nodes_[at].kind == Kind::kConcat; at = nodes_[at].b) heads.push_back(nodes_[at].a);
    RegexId made = concat(at, tail);
    while (!heads.empty()) {
      made = concat(heads.back(), made);
      heads.pop_back();
    }
    return made;
  }
  const Node& h = nodes_[head];
  const Node& t = nodes_[tail];
  const bool star = h.kind == Kind::kRepeat && h.b == 0 && h.c == kUnbounded;
  if (star && (tail == head || (t.kind == Kind::kConcat && t.a == head))) return tail;  // x*x* = x*
  return add({.kind = Kind::kConcat,
              .nullable = h.nullable && t.nullable,
              .complex = h.complex || t.complex,
              .a = head,
              .b = tail});
}

RegexId RegexStore::any_of(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  ByteSet set;
  const RegexId all = parts.empty() ? kNothing : negate(kNothing);
  bool everything = false;
  const auto take = [&](RegexId part) {
    const Node& node = nodes_[part];
    if (part == kNothing) return;
    if (part == all) everything = true;
    if (node.kind == Kind::kBytes) {
      set |= sets_[node.a];
    } else {
      flat.push_back(part);
    }
  };
  for (const RegexId part : parts) {
    if (nodes_[part].kind == Kind::kAny) {
      for (const RegexId inner : arguments(nodes_[part])) take(inner);
    } else {
      take(part);
    }
  }
  if (everything) return all;
  if (!set.empty()) flat.push_back(bytes(set));
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.size() > 1 && flat.front() == kEmpty &&
      std::ranges::any_of(flat, [&](RegexId part) { return part != kEmpty && nullable(part); })) {
    flat.erase(flat.begin());
  }
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat.front();
  Node node{.kind = Kind::kAny, .b = static_cast<uint32_t>(flat.size())};
  for (const RegexId part : flat) {
    node.nullable |= nodes_[part].nullable;
    node.complex |= nodes_[part].complex;
  }
  return add(node, flat);
}

RegexId RegexStore::all_of(std::vector<RegexId> parts) {
  const RegexId all = negate(kNothing);
  std::vector<RegexId> flat;
  ByteSet set = ByteSet::range(0, 255);
  bool has_set = false;
  const auto take = [&](RegexId part) {
    if (part == all) return;
    if (nodes_[part].kind == Kind::kBytes) {
      set &= sets_[nodes_[part].a];
      has_set = true;
    } else {
      flat.push_back(part);
    }
  };
  for (const RegexId part : parts) {
    if (nodes_[part].kind == Kind::kAll) {
      for (const RegexId inner : arguments(nodes_[part])) take(inner);
    } else {
      take(part);
    }
  }
  if (has_set) flat.push_back(bytes(set));
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return all;
  if (flat.front() == kNothing) return kNothing;
  if (flat.size() == 1) return flat.front();
  Node node{.kind = Kind::kAll, .nullable = true, .complex = true, .b = static_cast<uint32_t>(flat.size())};
  for (const RegexId part : flat) node.nullable &= nodes_[part].nullable;
  if (flat.front() == kEmpty) return node.nullable ? kEmpty : kNothing;
  return add(node, flat);
}

RegexId RegexStore::negate(RegexId inner) {
  if (nodes_[inner].kind == Kind::kNot) return nodes_[inner].a;
  return add({.kind = Kind::kNot, .nullable = !nodes_[inner].nullable, .complex = inner != kNothing, .a = inner});
}

RegexId RegexStore::repeat(RegexId body, uint32_t min, uint32_t max) {
  const Node& node = nodes_[body];
  if (max == 0 || body == kEmpty) return kEmpty;
  if (body == kNothing) return min == 0 ? kEmpty : kNothing;
  if (node.nullable) min = 0;
  if (min == 1 && max == 1) return body;
  if (node.nullable && max == 1) return body;
  if (node.kind == Kind::kRepeat && node.b == 0 && node.c == kUnbounded) return body;  // (x*)* = x*
  return add({.kind = Kind::kRepeat,
              .nullable = min == 0 || node.nullable,
              .complex = node.complex,
              .a = body,
              .b = min,
              .c = max});
}

RegexId RegexStore::multiple(uint32_t divisor, uint32_t decimals, uint32_t rest, bool in_fraction) {
  if (!in_fraction && rest == 0) {
    for (unsigned digit = '0'; digit <= '9'; ++digit) range(digit, digit);  // derivatives tell them apart
    range('.', '.');
  }
  uint64_t scaled = rest;
  for (uint32_t i = 0; i < decimals; ++i) scaled = scaled * 10 % divisor;
  return add({.kind = Kind::kMultiple,
              .nullable = scaled == 0,
              .complex = true,
              .a = divisor,
              .b = rest,
              .c = decimals * 2 + (in_fraction ? 1u : 0u)});
}

size_t RegexStore::classes() {
  update_classes();
  return members_.size();
}

// Splits the classes by the sets that have come since. Sets that derivatives make are unions of classes and split none.
void RegexStore::update_classes() {
  if (sets_seen_ == sets_.size()) return;
  const size_t before = members_.size();
  for (; sets_seen_ < sets_.size(); ++sets_seen_) {
    const ByteSet& set = sets_[sets_seen_];
    for (size_t i = members_.size(); i-- > 0;) {
      ByteSet inside = members_[i], outside = members_[i];
      inside &= set;
      for (size_t w = 0; w < 4; ++w) outside.words[w] &= ~set.words[w];
      if (inside.empty() || outside.empty()) continue;
      members_[i] = inside;
      members_.push_back(outside);
    }
  }
  if (members_.size() == before) return;
  for (size_t i = 0; i < members_.size(); ++i) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (members_[i].has(byte)) class_of_[byte] = static_cast<uint8_t>(i);
    }
  }
  std::ranges::fill(row_of_, kUnknown);
  rows_.clear();
}

RegexId RegexStore::derivative(RegexId regex, uint8_t byte_class) {
  update_classes();
  const RegexId made = cached_derivative(regex, byte_class);
  return is_empty(made) ? kNothing : made;
}

// Does not check whether the result is empty: search_is_empty() calls this for expressions that it has not decided about.
RegexId RegexStore::cached_derivative(RegexId regex, uint8_t byte_class) {
  if (row_of_[regex] == kUnknown) {
    row_of_[regex] = static_cast<uint32_t>(rows_.size());
    rows_.resize(rows_.size() + members_.size(), kUnknown);
  }
  const uint32_t at = row_of_[regex] + byte_class;
  if (rows_[at] == kUnknown) {
    const RegexId made = derive(regex, byte_class);
    rows_[at] = made;
  }
  return rows_[at];
}

RegexId RegexStore::derive(RegexId regex, uint8_t byte_class) {
  const Node node = nodes_[regex];  // a copy: nodes_ grows
  budget_.spend();
  const auto first_member = [&] {
    unsigned byte = 0;
    while (!members_[byte_class].has(byte)) ++byte;
    return byte;
  };
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kBytes:
      return sets_[node.a].has(first_member()) ? kEmpty : kNothing;
    case Kind::kConcat: {  // (h t)' = h' t, or t' if h matches the empty text; unrolled, as the chain may be long
      std::vector<RegexId> parts;
      RegexId at = regex;
      while (true) {
        const Node link = nodes_[at];
        if (link.kind != Kind::kConcat) {
          parts.push_back(cached_derivative(at, byte_class));
          break;
        }
        parts.push_back(concat(cached_derivative(link.a, byte_class), link.b));
        if (!nodes_[link.a].nullable) break;
        at = link.b;
      }
      return parts.size() == 1 ? parts[0] : any_of(std::move(parts));
    }
    case Kind::kAny:
    case Kind::kAll: {
      std::vector<RegexId> parts;
      for (uint32_t i = 0; i < node.b; ++i) {
        const RegexId part = cached_derivative(arguments_[node.a + i], byte_class);
        if (part == kNothing && node.kind == Kind::kAll) return kNothing;
        if (part != kNothing) parts.push_back(part);
      }
      return node.kind == Kind::kAny ? any_of(std::move(parts)) : all_of(std::move(parts));
    }
    case Kind::kNot:
      return negate(cached_derivative(node.a, byte_class));
    case Kind::kRepeat: {
      const RegexId rest = repeat(node.a, node.b == 0 ? 0 : node.b - 1, node.c == kUnbounded ? kUnbounded : node.c - 1);
      return concat(cached_derivative(node.a, byte_class), rest);
    }
    case Kind::kMultiple: {
      const unsigned byte = first_member();
      const uint32_t decimals = node.c / 2;
      const bool in_fraction = node.c % 2 != 0;
      if (byte == '.') return in_fraction ? kNothing : multiple(node.a, decimals, node.b, true);
      if (byte < '0' || byte > '9') return kNothing;
      if (in_fraction && decimals == 0) return byte == '0' ? regex : kNothing;
      const auto rest = static_cast<uint32_t>((node.b * uint64_t{10} + (byte - '0')) % node.a);
      return multiple(node.a, in_fraction ? decimals - 1 : decimals, rest, in_fraction);
    }
  }
  return kNothing;
}

bool RegexStore::is_empty(RegexId regex) {
  if (!nodes_[regex].complex) return regex == kNothing;
  if (searched_[regex] != Search::kUnknown) return searched_[regex] == Search::kNone;
  return search_is_empty(regex);
}

// Looks for a nullable derivative, depth first. If there is one, all on the way to it match something; if there is
// none, none of those visited does.
bool RegexStore::search_is_empty(RegexId root) {
  update_classes();
  struct Step {
    RegexId regex;
    size_t next_class;
  };
  std::vector<Step> path;
  std::vector<RegexId> visited;
  const auto found = [&] {
    for (const Step& step : path) searched_[step.regex] = Search::kSome;
    for (const RegexId regex : visited) {  // not on the path: not decided
      if (searched_[regex] == Search::kNone) searched_[regex] = Search::kUnknown;
    }
    return false;
  };
  try {
    const auto visit = [&](RegexId regex) {
      budget_.spend();
      searched_[regex] = Search::kNone;  // until proven otherwise
      visited.push_back(regex);
      path.push_back({regex, 0});
    };
    visit(root);
    while (!path.empty()) {
      const RegexId at = path.back().regex;
      if (nodes_[at].nullable) return found();
      if (path.back().next_class == members_.size()) {
        path.pop_back();
        continue;
      }
      const RegexId next = cached_derivative(at, static_cast<uint8_t>(path.back().next_class++));
      if (next == kNothing || searched_[next] == Search::kNone) continue;
      if (!nodes_[next].complex || searched_[next] == Search::kSome) return found();
      visit(next);
    }
  } catch (...) {
    for (const RegexId regex : visited) searched_[regex] = Search::kUnknown;
    throw;
  }
  return true;
}

bool RegexStore::matches(RegexId regex, std::string_view text) {
  update_classes();
  for (const char c : text) {
    regex = derivative(regex, class_of_[static_cast<uint8_t>(c)]);
    if (regex == kNothing) return false;
  }
  return nullable(regex);
}

RegexId RegexStore::import(const RegexStore& other, RegexId regex, std::vector<RegexId>& memo) {
  // Arguments have smaller ids than the nodes made of them, so a work list instead of recursion suffices.
  std::vector<RegexId> work{regex};
  memo[kNothing] = kNothing;
  memo[kEmpty] = kEmpty;
  while (!work.empty()) {
    const RegexId at = work.back();
    const Node& node = other.nodes_[at];
    bool ready = true;
    const auto need = [&](RegexId part) {
      if (memo[part] != kUnknown) return;
      work.push_back(part);
      ready = false;
    };
    if (memo[at] != kUnknown) {
      work.pop_back();
      continue;
    }
    const bool list = node.kind == Kind::kAny || node.kind == Kind::kAll;
    if (list) {
      for (const RegexId part : other.arguments(node)) need(part);
    } else if (node.kind == Kind::kConcat || node.kind == Kind::kNot || node.kind == Kind::kRepeat) {
      need(node.a);
      if (node.kind == Kind::kConcat) need(node.b);
    }
    if (!ready) continue;
    work.pop_back();
    std::vector<RegexId> parts;
    if (list) {
      for (const RegexId part : other.arguments(node)) parts.push_back(memo[part]);
    }
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
        break;
      case Kind::kBytes:
        memo[at] = bytes(other.sets_[node.a]);
        break;
      case Kind::kConcat:
        memo[at] = concat(memo[node.a], memo[node.b]);
        break;
      case Kind::kAny:
        memo[at] = any_of(std::move(parts));
        break;
      case Kind::kAll:
        memo[at] = all_of(std::move(parts));
        break;
      case Kind::kNot:
        memo[at] = negate(memo[node.a]);
        break;
      case Kind::kRepeat:
        memo[at] = repeat(memo[node.a], node.b, node.c);
        break;
      case Kind::kMultiple:
        memo[at] = multiple(node.a, node.c / 2, node.b, node.c % 2 != 0);
        break;
    }
  }
  return memo[regex];
}

}  // namespace quire::grammar
