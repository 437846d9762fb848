// The forms of the files: common/imatrix-loader.cpp and tools/imatrix/imatrix.cpp of llama.cpp (b11434).
#include "quantize/importance_matrix.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/text/quote.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace quire {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts", kGgufMagic = "GGUF";

void check_entry(const ImportanceMatrix::Entry& entry, const std::string& file, std::string_view name) {
  for (const std::vector<float>* numbers : {&entry.sums, &entry.counts}) {
    for (const float x : *numbers) {
      if (!std::isfinite(x) || x < 0)
        throw invalid("{}: the entry {} has the {} {}; only finite numbers from 0 on make sense", file, quote(name),
                      numbers == &entry.sums ? "sum" : "count", x);
    }
  }
  // A count below 1 would make mean squares infinite.
  for (const float x : entry.counts) {
    if (x != std::floor(x))
      throw invalid("{}: the entry {} has the count {}; counts are whole numbers", file, quote(name), x);
  }
  if (entry.sums.empty() || entry.counts.empty() || entry.sums.size() % entry.counts.size() != 0)
    throw invalid("{}: the entry {} has {} sums and {} counts, which do not fit each other", file, quote(name),
                  entry.sums.size(), entry.counts.size());
}

std::vector<float> floats_of(const TensorView& view, const std::string& file) {
  if (view.type != TensorType::F32)
    throw invalid("{}: tensor {} has type {}; an importance matrix has F32", file, quote(view.name), name(view.type));
  std::vector<float> numbers(view.bytes.size() / sizeof(float));
  std::ranges::copy(view.bytes.first(numbers.size() * sizeof(float)),
                    std::as_writable_bytes(std::span(numbers)).begin());
  return numbers;
}

ImportanceMatrix read_gguf_form(const Gguf& gguf) {
  const std::string& file = gguf.file();
  if (gguf.get_or<std::string>("general.type", "") != "imatrix")
    throw invalid("{} is a GGUF file, but not an importance matrix: general.type is not \"imatrix\"", file);
  ImportanceMatrix matrix;
  if (gguf.has("imatrix.datasets")) {
    for (const std::string_view dataset : gguf.strings("imatrix.datasets")) matrix.datasets.emplace_back(dataset);
  }
  matrix.chunks = std::max(0, gguf.get_or<int>("imatrix.chunk_count", 0));
  matrix.chunk_size = std::max(0, gguf.get_or<int>("imatrix.chunk_size", 0));
  for (const TensorView& view : gguf.tensors()) {
    std::string_view name = view.name;
    if (!name.ends_with(kSums)) continue;
    name.remove_suffix(kSums.size());
    const TensorView* counts = gguf.find_tensor(std::string(name) + std::string(kCounts));
    if (!counts) throw invalid("{}: the entry {} has sums, but no counts", file, quote(name));
    ImportanceMatrix::Entry entry{floats_of(view, file), floats_of(*counts, file)};
    check_entry(entry, file, name);
    matrix.entries.emplace(name, std::move(entry));
  }
  check_unchanged(gguf.mappings());
  if (matrix.entries.empty()) throw invalid("{}: the importance matrix has no entries", file);
  return matrix;
}

// Reads the older form, whose numbers are 32-bit and little-endian, from front to back.
class LegacyReader {
 public:
  LegacyReader(std::span<const std::byte> bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  bool at_end() const { return bytes_.empty(); }
  int32_t number(std::string_view what) {
    int32_t value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string text(int32_t size, std::string_view what) {
    const auto bytes = take(count(size, 1, what), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<float> floats(int32_t size, std::string_view what) {
    std::vector<float> values(count(size, sizeof(float), what));
    std::ranges::copy(take(values.size() * sizeof(float), what), std::as_writable_bytes(std::span(values)).begin());
    return values;
  }

 private:
  // A count of items that the rest of the file can hold.
  size_t count(int32_t size, size_t bytes_of_each, std::string_view what) const {
    if (size < 0 || static_cast<size_t>(size) > bytes_.size() / bytes_of_each)
      throw invalid("{} is not an importance matrix, or is damaged: {} would take {} times {} bytes, but {} are left",
                    file_, what, size, bytes_of_each, bytes_.size());
    return static_cast<size_t>(size);
  }
  std::span<const std::byte> take(size_t size, std::string_view what) {
    if (size > bytes_.size())
      throw invalid("{} is not an importance matrix, or was cut off: it ends within {}", file_, what);
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

  std::span<const std::byte> bytes_;
  const std::string file_;
};

ImportanceMatrix read_legacy_form(std::span<const std::byte> bytes, const std::string& file) {
  LegacyReader in(bytes, file);
  ImportanceMatrix matrix;
  const int32_t entries = in.number("the number of entries");
  if (entries < 1)
    throw invalid("{} is not an importance matrix, or is damaged: it says that it has {} entries", file, entries);
  for (int32_t i = 0; i < entries; ++i) {
    const std::string place = fmt::format("entry {} of {}", i + 1, entries);
    const std::string name = in.text(in.number(place), place);
    const int32_t calls = in.number(place);
    ImportanceMatrix::Entry entry{in.floats(in.number(place), place), {static_cast<float>(std::max(calls, 1))}};
    check_entry(entry, file, name);
    if (!matrix.entries.emplace(name, std::move(entry)).second)
      throw invalid("{}: the entry {} is there twice", file, quote(name));
  }
  if (in.at_end()) return matrix;
  matrix.chunks = std::max(0, in.number("the number of chunks"));
  if (!in.at_end()) matrix.datasets.push_back(in.text(in.number("the name of the text"), "the name of the text"));
  return matrix;
}

// A file under another name until it is whole.
class LegacyFile {
 public:
  explicit LegacyFile(const std::filesystem::path& path)
      : path_(path), unfinished_(path.string() + ".tmp"), file_(std::fopen(unfinished_.c_str(), "wb"), &std::fclose) {
    if (!file_) throw invalid("{} cannot be written: {}", unfinished_, std::strerror(errno));
  }
  ~LegacyFile() {
    if (file_) std::remove(unfinished_.c_str());
  }
  LegacyFile(const LegacyFile&) = delete;
  LegacyFile& operator=(const LegacyFile&) = delete;

  void number(size_t value) {
    const auto word = static_cast<int32_t>(value);
    bytes(std::as_bytes(std::span(&word, 1)));
  }
  void text(std::string_view value) {
    number(value.size());
    bytes(std::as_bytes(std::span(value)));
  }
  void bytes(std::span<const std::byte> all) {
    if (std::fwrite(all.data(), 1, all.size(), file_.get()) != all.size()) fail();
  }
  void commit() {
    if (std::fflush(file_.get()) != 0 || std::rename(unfinished_.c_str(), path_.c_str()) != 0) fail();
    file_.reset();
  }

 private:
  [[noreturn]] void fail() { throw no_resource("{} could not be written: {}", path_.string(), std::strerror(errno)); }

  const std::filesystem::path path_;
  const std::string unfinished_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

void write_legacy_form(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  LegacyFile file(path);
  file.number(matrix.entries.size());
  const auto calls = static_cast<size_t>(std::max(1, matrix.chunks));
  for (const auto& [name, entry] : matrix.entries) {
    std::vector<float> means = ImportanceMatrix::mean_squares(entry);
    for (float& mean : means) mean *= static_cast<float>(calls);
    file.text(name);
    file.number(calls);
    file.number(means.size());
    file.bytes(std::as_bytes(std::span(means)));
  }
  file.number(static_cast<size_t>(matrix.chunks));
  file.text(matrix.datasets.empty() ? "" : matrix.datasets.back());
  file.commit();
}

void write_gguf_form(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  GgufHeader header;
  header.string("general.type", "imatrix");
  header.strings("imatrix.datasets", matrix.datasets);
  header.u32("imatrix.chunk_count", matrix.chunks);
  header.u32("imatrix.chunk_size", matrix.chunk_size);
  for (const auto& [name, entry] : matrix.entries) {
    const uint64_t matrices = entry.counts.size();
    header.tensor(name + std::string(kSums), TensorType::F32, {matrices, entry.sums.size() / matrices});
    header.tensor(name + std::string(kCounts), TensorType::F32, {matrices, 1});
  }
  GgufFile file(path, header);
  auto tensor = header.tensors().begin();
  for (const auto& [name, entry] : matrix.entries) {
    file.write(*tensor++, std::as_bytes(std::span(entry.sums)));
    file.write(*tensor++, std::as_bytes(std::span(entry.counts)));
  }
  file.commit();
}

}  // namespace

std::vector<float> ImportanceMatrix::mean_squares(const Entry& entry) {
  assert(!entry.counts.empty() && entry.sums.size() % entry.counts.size() == 0);
  const size_t cols = entry.sums.size() / entry.counts.size();
  std::vector<float> means(entry.sums.size());
  for (size_t i = 0; i < means.size(); ++i) {
    const float count = entry.counts[i / cols];
    means[i] = count > 0 ? entry.sums[i] / count : 1;
  }
  return means;
}

ImportanceMatrix read_importance_matrix(const std::filesystem::path& path) {
  const MappedFile mapped(path);
  std::string magic(std::min(mapped.bytes().size(), kGgufMagic.size()), '\0');
  mapped.read(0, std::as_writable_bytes(std::span(magic)));
  if (magic == kGgufMagic) return read_gguf_form(Gguf::open(path));
  std::vector<std::byte> bytes(mapped.bytes().size());
  mapped.read(0, bytes);
  return read_legacy_form(bytes, mapped.path().string());
}

ImportanceMatrix parse_importance_matrix(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with(kGgufMagic) ? read_gguf_form(Gguf::parse(bytes, file)) : read_legacy_form(bytes, file);
}

void write_importance_matrix(const ImportanceMatrix& matrix, const std::filesystem::path& path, ImportanceForm form) {
  if (form == ImportanceForm::kLegacy) return write_legacy_form(matrix, path);
  write_gguf_form(matrix, path);
}

}  // namespace quire
