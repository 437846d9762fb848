#include "format/gguf_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/write_all.h"

namespace quire {
namespace {

constexpr uint64_t kAlignment = 32;                    // the format's default
constexpr uint32_t kMagic = 0x46554747, kVersion = 3;  // "GGUF"

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append_text(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out += text;
}

}  // namespace

void GgufHeader::key(std::string_view name, GgufType type) {
  append_text(metadata_, name);
  number(static_cast<uint32_t>(type));
  ++keys_;
}

void GgufHeader::array(std::string_view name, GgufType element, size_t count) {
  key(name, GgufType::ARRAY);
  number(static_cast<uint32_t>(element));
  number<uint64_t>(count);
}

void GgufHeader::u32(std::string_view name, int64_t value) {
  assert(value >= 0 && value <= UINT32_MAX);
  key(name, GgufType::U32);
  number(static_cast<uint32_t>(value));
}
void GgufHeader::f32(std::string_view name, double value) {
  key(name, GgufType::F32);
  number(static_cast<float>(value));
}
void GgufHeader::flag(std::string_view name, bool value) {
  key(name, GgufType::BOOL);
  number(static_cast<uint8_t>(value));
}
void GgufHeader::string(std::string_view name, std::string_view value) {
  key(name, GgufType::STRING);
  append_text(metadata_, value);
}
void GgufHeader::strings(std::string_view name, std::span<const std::string> values) {
  array(name, GgufType::STRING, values.size());
  for (const std::string& value : values) append_text(metadata_, value);
}
void GgufHeader::numbers(std::string_view name, std::span<const int32_t> values) {
  array(name, GgufType::I32, values.size());
  for (const int32_t value : values) number(value);
}
void GgufHeader::numbers(std::string_view name, std::span<const float> values) {
  array(name, GgufType::F32, values.size());
  for (const float value : values) number(value);
}
void GgufHeader::flags(std::string_view name, const std::vector<bool>& values) {
  array(name, GgufType::BOOL, values.size());
  for (const bool value : values) number(static_cast<uint8_t>(value));
}
void GgufHeader::bytes(std::string_view name, std::string_view values) {
  array(name, GgufType::U8, values.size());
  metadata_ += values;
}

void GgufHeader::copy(std::string_view name, const GgufValue& value) {
  const std::string_view bytes(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  if (value.type == GgufType::STRING) return string(name, bytes);
  if (value.type == GgufType::ARRAY)
    array(name, value.element, value.count);
  else
    key(name, value.type);
  metadata_ += bytes;
}

void GgufHeader::tensor(std::string name, TensorType type, std::vector<uint64_t> shape) {
  const auto bytes = tensor_bytes(type, shape);
  assert(bytes && info(type).ggml_id >= 0);
  tensors_.push_back(Tensor{std::move(name), type, std::move(shape), end_, *bytes});
  end_ = aligned(end_ + *bytes);
}

std::string GgufHeader::spell() const {
  std::string out;
  append(out, kMagic);
  append(out, kVersion);
  append<uint64_t>(out, tensors_.size());
  append(out, keys_);
  out += metadata_;
  for (const Tensor& t : tensors_) {
    append_text(out, t.name);
    append(out, static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) append(out, t.shape[i]);  // innermost first
    append(out, static_cast<uint32_t>(info(t.type).ggml_id));
    append(out, t.offset);
  }
  out.resize(aligned(out.size()), '\0');
  return out;
}

GgufFile::GgufFile(std::filesystem::path path, const GgufHeader& header)
    : path_(std::move(path)), unfinished_(path_.string() + ".tmp") {
  create(header, O_TRUNC);
}

GgufFile::GgufFile(std::filesystem::path path, const GgufHeader& header, std::filesystem::path unfinished)
    : path_(std::move(path)), unfinished_(std::move(unfinished)), is_kept_(true) {
  create(header, 0);
}

void GgufFile::create(const GgufHeader& header, int flags) {
  const std::string start = header.spell();
  descriptor_ = ::open(unfinished_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0666);
  if (descriptor_ < 0) throw invalid("{} cannot be written: {}", unfinished_.string(), std::strerror(errno));
  try {
    data_begin_ = start.size();
    if (::ftruncate(descriptor_, static_cast<off_t>(data_begin_ + header.bytes_of_data())) != 0) fail("written");
    write_at(0, std::as_bytes(std::span(start)));
  } catch (...) {
    ::close(descriptor_);
    drop();
    throw;
  }
}

GgufFile::~GgufFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  drop();
}

void GgufFile::drop() noexcept {
  if (!is_kept_) ::unlink(unfinished_.c_str());
}

bool GgufFile::has(const GgufHeader::Tensor& tensor, uint64_t checksum) const {
  return checksum_of(descriptor_, data_begin_ + tensor.offset, tensor.bytes) == checksum;
}

void GgufFile::write(const GgufHeader::Tensor& tensor, std::span<const std::byte> bytes) {
  assert(bytes.size() == tensor.bytes);
  write_at(data_begin_ + tensor.offset, bytes);
}

void GgufFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  errno = write_all_at(descriptor_, bytes, offset);
  if (errno != 0) fail("written");
}

void GgufFile::commit() {
  // Errors of delayed writes show here, before the name promises a whole file.
  if (::fsync(descriptor_) != 0) fail("written");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    drop();
    errno = reason;
    fail("completed");
  }
}

void GgufFile::fail(const char* what) {
  throw no_resource("{} could not be {}: {}", path_.string(), what, std::strerror(errno));
}

}  // namespace quire
