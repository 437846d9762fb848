#include "format/gguf_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text/utf8.h"

namespace quire {

using namespace gguf_detail;

namespace {

constexpr int kMaxDimensions = 4;        // ggml's own bound
constexpr int kMaxArrayDepth = 4;        // no known writer nests arrays; scanning recurses
constexpr size_t kMaxNameBytes = 65535;  // the format's bound for keys

// By value of GgufType.
struct TypeRow {
  std::string_view name;
  size_t bytes;  // size of a scalar; the least of a string or an array
};
constexpr auto kTypeRows = std::to_array<TypeRow>({
    {"U8", 1},
    {"I8", 1},
    {"U16", 2},
    {"I16", 2},
    {"U32", 4},
    {"I32", 4},
    {"F32", 4},
    {"BOOL", 1},
    {"STRING", 8},
    {"ARRAY", 12},
    {"U64", 8},
    {"I64", 8},
    {"F64", 8},
});

// The header goes on after the bytes that were read of it.
struct HeaderIsLonger {};

// Reads a file's bytes in order, of which `bytes` are the first; reading past the end of the file is an Error, past
// `bytes` HeaderIsLonger.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, size_t file_size, std::string_view file)
      : bytes_(bytes), size_(file_size), file_(file) {}

  size_t offset() const { return at_; }
  size_t left() const { return size_ - at_; }

  // What is being read, for error messages: `kind` is "key" or "tensor", `name` as in the file.
  void set_subject(std::string_view kind, std::string_view name) { kind_ = kind, name_ = name; }

  template <class... A>
  Error wrong(size_t offset, fmt::format_string<A...> reason, A&&... a) const {
    const std::string subject = kind_.empty() ? "" : fmt::format("{} {} ", kind_, quote(name_));
    return invalid("{}: {}at offset {}: {}", file_, subject, offset, fmt::format(reason, std::forward<A>(a)...));
  }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) throw wrong(at_, "{} takes {} bytes, but only {} are left in the file", what, count, left());
    if (count > bytes_.size() - at_) throw HeaderIsLonger();
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  // A count of items that take at least `each` bytes; throws if the rest of the file cannot hold them.
  uint64_t count(size_t each, std::string_view what) {
    const auto n = number<uint64_t>(what);
    if (n > left() / each) {
      throw wrong(at_ - sizeof n, "{} is {}, but the {} bytes left in the file hold at most {}", what, n, left(),
                  left() / each);
    }
    return n;
  }
  std::string_view string(std::string_view what) { return text(take(number<uint64_t>("a string's length"), what)); }
  std::string_view name(std::string_view what) {
    const size_t start = at_;
    const std::string_view s = string(what);
    if (s.empty()) throw wrong(start, "{} is empty", what);
    if (s.size() > kMaxNameBytes)
      throw wrong(start, "{} has {} bytes, at most {} are allowed", what, s.size(), kMaxNameBytes);
    if (!is_utf8(s)) throw wrong(start, "{} {} is not valid UTF-8", what, quote(s));
    return s;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t size_;
  std::string_view file_, kind_, name_;
  size_t at_ = 0;
};

GgufType read_type(Cursor& in, std::string_view what) {
  const auto id = in.number<uint32_t>(what);
  if (id >= kTypeRows.size()) throw in.wrong(in.offset() - sizeof id, "{} is {}; expected 0 to 12", what, id);
  return static_cast<GgufType>(id);
}

void check_bools(const Cursor& in, std::span<const std::byte> bytes) {
  const auto bad = std::ranges::find_if(bytes, [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return;
  const auto index = static_cast<size_t>(bad - bytes.begin());
  throw in.wrong(in.offset() - bytes.size() + index, "expected 0 or 1 as BOOL, found {}", static_cast<int>(*bad));
}

GgufValue read_value(Cursor& in, GgufType type, std::span<const std::byte> all, int depth) {
  GgufValue value;
  value.type = type;
  if (type == GgufType::STRING) {
    value.bytes = in.take(in.number<uint64_t>("a string's length"), "a string");
    return value;
  }
  if (type != GgufType::ARRAY) {
    value.bytes = in.take(least_bytes(type), name(type));
    if (type == GgufType::BOOL) check_bools(in, value.bytes);
    return value;
  }
  if (depth == kMaxArrayDepth) throw in.wrong(in.offset(), "arrays are nested deeper than {}", kMaxArrayDepth);
  value.element = read_type(in, "an array's element type");
  value.count = in.count(least_bytes(value.element), "an array's length");
  const size_t start = in.offset();
  if (value.element == GgufType::STRING) {
    for (uint64_t i = 0; i < value.count; ++i) in.string("a string of the array");
  } else if (value.element == GgufType::ARRAY) {
    for (uint64_t i = 0; i < value.count; ++i) read_value(in, GgufType::ARRAY, all, depth + 1);
  } else {
    in.take(value.count * least_bytes(value.element), "an array");
  }
  value.bytes = all.subspan(start, in.offset() - start);
  if (value.element == GgufType::BOOL) check_bools(in, value.bytes);
  return value;
}

void read_header(Cursor& in, GgufPart& part) {
  const auto magic = in.take(4, "the magic \"GGUF\"");
  if (text(magic) != "GGUF")
    throw in.wrong(0, "not a GGUF file: it starts with {} instead of \"GGUF\"", quote(text(magic)));
  part.version = in.number<uint32_t>("the version");
  if ((part.version & 0xffff) == 0 && part.version != 0) {
    throw unsupported("{}: version {:#x} at offset 4: the file is big-endian; only little-endian GGUF is supported",
                      part.file, part.version);
  }
  if (part.version != 2 && part.version != 3) {
    throw unsupported("{}: version {} at offset 4: only GGUF versions 2 and 3 are supported; convert the model again",
                      part.file, part.version);
  }
}

void read_metadata(Cursor& in, std::span<const std::byte> bytes, uint64_t count, GgufPart& part) {
  for (uint64_t i = 0; i < count; ++i) {
    const size_t start = in.offset();
    const std::string_view key = in.name("a key");
    in.set_subject("key", key);
    const GgufValue value = read_value(in, read_type(in, "the value's type"), bytes, 0);
    if (!part.values.emplace(key, value).second) throw in.wrong(start, "the key appears twice");
    in.set_subject("", "");
    part.keys.push_back(key);
  }
}

uint64_t alignment_of(const GgufPart& part) {
  const uint32_t alignment = structural<uint32_t>(part, "general.alignment").value_or(32);
  if (alignment < 8 || (alignment & (alignment - 1)) != 0) {
    throw invalid("{}: key \"general.alignment\": {} is not a power of two of at least 8", part.file, alignment);
  }
  return alignment;
}

struct Place {
  uint64_t begin = 0, end = 0;  // bytes from the beginning of the data
  size_t tensor = 0;
};

Place read_tensor(Cursor& in, uint64_t alignment, TensorView& tensor) {
  tensor.name = in.name("a tensor's name");
  in.set_subject("tensor", tensor.name);
  const auto dimensions = in.number<uint32_t>("the number of dimensions");
  if (dimensions > kMaxDimensions) {
    throw in.wrong(in.offset() - 4, "{} dimensions, at most {} are allowed", dimensions, kMaxDimensions);
  }
  for (uint32_t d = 0; d < dimensions; ++d) {
    tensor.shape.push_back(in.number<uint64_t>("a dimension"));
    if (tensor.shape.back() == 0) throw in.wrong(in.offset() - 8, "dimension {} is 0", d);
  }
  std::ranges::reverse(tensor.shape);
  const auto id = in.number<uint32_t>("the tensor's type");
  const auto type = tensor_type_from_ggml(id);
  if (!type) throw in.wrong(in.offset() - 4, "tensor type {} is unknown; expected 0 to 42", id);
  tensor.type = *type;
  const auto size = tensor_bytes(*type, tensor.shape);
  if (!size) {
    throw in.wrong(in.offset() - 4, "shape [{}] does not fit type {}: {}", fmt::join(tensor.shape, ", "), name(*type),
                   (tensor.shape.empty() ? 1 : tensor.shape.back()) % info(*type).block_elements != 0
                       ? fmt::format("rows are whole blocks of {}", info(*type).block_elements)
                       : "the size overflows 64 bits");
  }
  const auto begin = in.number<uint64_t>("the tensor's offset");
  if (begin % alignment != 0) {
    throw in.wrong(in.offset() - 8, "data offset {} is not a multiple of the alignment {}", begin, alignment);
  }
  if (*size > std::numeric_limits<uint64_t>::max() - begin) {
    throw in.wrong(in.offset() - 8, "data offset {} plus {} bytes overflows 64 bits", begin, *size);
  }
  return {begin, begin + *size, 0};
}

void read_tensors(Cursor& in, std::span<const std::byte> bytes, uint64_t count, GgufPart& part) {
  const uint64_t alignment = alignment_of(part);
  std::vector<Place> places;
  for (uint64_t i = 0; i < count; ++i) {
    Place place = read_tensor(in, alignment, part.tensors.emplace_back());
    place.tensor = i;
    places.push_back(place);
    in.set_subject("", "");
  }

  const uint64_t start = (in.offset() + alignment - 1) / alignment * alignment;
  const uint64_t available = bytes.size() > start ? bytes.size() - start : 0;
  for (const Place& p : places) {
    TensorView& tensor = part.tensors[p.tensor];
    if (p.end > available) {
      throw invalid(
          "{}: tensor {}: its data, {} bytes at {} + {}, passes the end of the file ({} bytes); was it cut off?",
          part.file, quote(tensor.name), p.end - p.begin, start, p.begin, bytes.size());
    }
    tensor.bytes = bytes.subspan(start + p.begin, p.end - p.begin);
  }
  std::ranges::sort(places, {}, &Place::begin);
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end) {
      throw invalid("{}: tensor {}: its data at offset {} overlaps that of {}, which ends at {}", part.file,
                    quote(part.tensors[places[i].tensor].name), places[i].begin,
                    quote(part.tensors[places[i - 1].tensor].name), places[i - 1].end);
    }
  }
}

}  // namespace

std::string_view name(GgufType type) { return kTypeRows[static_cast<size_t>(type)].name; }
size_t gguf_detail::least_bytes(GgufType type) { return kTypeRows[static_cast<size_t>(type)].bytes; }

Error gguf_detail::wrong_type(std::string_view file, std::string_view key, std::string_view wanted,
                              const GgufValue& value) {
  const auto found = value.type == GgufType::ARRAY ? fmt::format("an array of {}", name(value.element))
                                                   : std::string(name(value.type));
  return invalid("{}: key {}: expected {}, found {}", file, quote(key), wanted, found);
}

std::vector<GgufValue> GgufValue::elements() const {
  assert(type == GgufType::ARRAY);
  Cursor in(bytes, bytes.size(), "");
  std::vector<GgufValue> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(read_value(in, element, bytes, 0));
  return out;
}

std::optional<GgufPart> read_gguf_part(std::span<const std::byte> header, std::span<const std::byte> bytes,
                                       std::string file) try {
  refuse_lfs_pointer(header, file);
  GgufPart part;
  part.file = std::move(file);
  Cursor in(header, bytes.size(), part.file);
  read_header(in, part);
  // Minimum of a tensor: length and one byte of its name, dimensions, type, offset; of a key: length, one byte, type,
  // one byte.
  const uint64_t tensors = in.count(8 + 1 + 4 + 4 + 8, "the number of tensors");
  const uint64_t keys = in.count(8 + 1 + 4 + 1, "the number of keys");
  read_metadata(in, header, keys, part);
  read_tensors(in, bytes, tensors, part);
  return part;
} catch (const HeaderIsLonger&) {
  return std::nullopt;
}

}  // namespace quire
