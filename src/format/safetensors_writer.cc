#include "format/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/write_all.h"
#include "json/parse.h"

namespace quire {
namespace {

constexpr size_t kHeaderAlignment = 8;

}  // namespace

uint64_t PlannedSafetensor::bytes() const {
  const auto size = tensor_bytes(type, shape);
  assert(size);
  return *size;
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path folder, std::vector<PlannedSafetensor> tensors,
                                     uint64_t shard_bytes)
    : SafetensorsWriter(std::move(folder), std::move(tensors), shard_bytes, O_EXCL) {}

SafetensorsWriter::SafetensorsWriter(Continue, const std::filesystem::path& folder,
                                     std::vector<PlannedSafetensor> tensors, uint64_t shard_bytes)
    : SafetensorsWriter(folder, std::move(tensors), shard_bytes, 0) {
  std::error_code error;
  std::vector<std::filesystem::path> others;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (std::ranges::find(shards_, at->path().filename().string(), &Shard::name) == shards_.end())
      others.push_back(at->path());
  }
  for (const std::filesystem::path& other : others) std::filesystem::remove_all(other, error);
  if (error) throw no_resource("{} could not be written: {}", folder.string(), error.message());
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path folder, std::vector<PlannedSafetensor> tensors,
                                     uint64_t shard_bytes, int flags)
    : folder_(std::move(folder)), tensors_(std::move(tensors)), places_(tensors_.size()) {
  std::vector<std::vector<size_t>> shards(1);
  for (size_t i = 0, bytes = 0; i < tensors_.size(); ++i) {
    const uint64_t more = tensors_[i].bytes();
    if (!shards.back().empty() && bytes + more > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(i);
    bytes += more;
  }
  for (size_t i = 0; i < shards.size(); ++i)
    shards_.push_back({shards.size() == 1 ? "model.safetensors"
                                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size())});
  try {
    for (size_t i = 0; i < shards.size(); ++i) create(i, shards[i], flags);
  } catch (...) {
    for (const Shard& shard : shards_) {
      if (shard.descriptor >= 0) ::close(shard.descriptor);
    }
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  for (const Shard& shard : shards_) {
    if (shard.descriptor >= 0) ::close(shard.descriptor);
  }
}

void SafetensorsWriter::create(size_t index, std::span<const size_t> tensors, int flags) {
  Shard& shard = shards_[index];
  // Types of larger elements come first, so that every tensor is aligned.
  std::vector<size_t> order(tensors.begin(), tensors.end());
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return info(tensors_[i].type).block_bytes; });
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t at = 0;
  for (const size_t i : order) {
    const PlannedSafetensor& tensor = tensors_[i];
    const uint64_t end = at + tensor.bytes();
    header[tensor.name] = {{"dtype", name(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    places_[i] = {.shard = index, .begin = at};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t length = text.size(), data = length + sizeof length;
  for (const size_t i : order) places_[i].begin += data;
  shard.descriptor = ::open((folder_ / shard.name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0666);
  if (shard.descriptor < 0 || ::ftruncate(shard.descriptor, static_cast<off_t>(data + at)) != 0) fail(shard);
  write_at(shard, 0, std::as_bytes(std::span(&length, 1)));
  write_at(shard, sizeof length, std::as_bytes(std::span(text)));
}

void SafetensorsWriter::write(size_t tensor, std::span<const std::byte> bytes) {
  Place& place = places_[tensor];
  assert(bytes.size() == tensors_[tensor].bytes());
  write_at(shards_[place.shard], place.begin, bytes);
  place.written = true;
}

bool SafetensorsWriter::accept(size_t tensor, uint64_t checksum) {
  Place& place = places_[tensor];
  if (checksum_of(shards_[place.shard].descriptor, place.begin, tensors_[tensor].bytes()) != checksum) return false;
  place.written = true;
  return true;
}

void SafetensorsWriter::write_at(const Shard& shard, uint64_t at, std::span<const std::byte> bytes) {
  errno = write_all_at(shard.descriptor, bytes, at);
  if (errno != 0) fail(shard);
}

void SafetensorsWriter::finish() {
  assert(std::ranges::all_of(places_, &Place::written));
  if (shards_.size() > 1) {
    uint64_t total = 0;
    Json map = Json::object();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      total += tensors_[i].bytes();
      map[tensors_[i].name] = shards_[places_[i].shard].name;
    }
    const std::string text = Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
    Shard& index = shards_.emplace_back(Shard{"model.safetensors.index.json"});
    index.descriptor = ::open((folder_ / index.name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (index.descriptor < 0) fail(index);
    write_at(index, 0, std::as_bytes(std::span(text)));
  }
  for (Shard& shard : shards_) {
    const bool synced = ::fsync(shard.descriptor) == 0;
    const int reason = errno;
    const bool closed = ::close(std::exchange(shard.descriptor, -1)) == 0;
    if (!synced) errno = reason;
    if (!synced || !closed) fail(shard);
  }
}

void SafetensorsWriter::fail(const Shard& shard) {
  throw no_resource("{} could not be written: {}", (folder_ / shard.name).string(), std::strerror(errno));
}

}  // namespace quire
