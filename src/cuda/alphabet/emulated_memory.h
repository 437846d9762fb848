// Pointers of kernels on the emulated device (alphabet/alphabet.h): each read and write is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/emulated/machine.h"

#define DEVICE inline

namespace quire::cuda {

enum class MemorySpace : uint8_t { kGlobal, kShared };

// The checks of machine.h for a space.
template <MemorySpace Space>
void check_read(const void* at, size_t bytes) {
  if constexpr (Space == MemorySpace::kGlobal) {
    emulated::read_global(at, bytes);
  } else {
    emulated::read_shared(at, bytes);
  }
}
template <MemorySpace Space>
void check_write(const void* at, size_t bytes) {
  if constexpr (Space == MemorySpace::kGlobal) {
    emulated::write_global(at, bytes);
  } else {
    emulated::write_shared(at, bytes);
  }
}

// p[i] that is not const: reads as a T, and can be assigned. Only as a temporary: `auto v = p[i]` would read when v is used,
// and so does not compile.
template <class T, MemorySpace Space>
class MemoryReference {
 public:
  explicit MemoryReference(T* at) : at_(at) {}
  MemoryReference(const MemoryReference&) = delete;

  operator T() const&& { return value(); }  // NOLINT(google-explicit-constructor): it stands for a T&
  T operator=(const T& v) && { return assign(v); }
  T operator=(MemoryReference&& other) && { return assign(other.value()); }
  T operator+=(const T& v) && { return assign(static_cast<T>(value() + v)); }
  T operator-=(const T& v) && { return assign(static_cast<T>(value() - v)); }
  T operator*=(const T& v) && { return assign(static_cast<T>(value() * v)); }
  T operator/=(const T& v) && { return assign(static_cast<T>(value() / v)); }
  T operator|=(const T& v) && { return assign(static_cast<T>(value() | v)); }
  T operator&=(const T& v) && { return assign(static_cast<T>(value() & v)); }
  T operator^=(const T& v) && { return assign(static_cast<T>(value() ^ v)); }

 private:
  T value() const {
    check_read<Space>(at_, sizeof(T));
    return *at_;
  }
  T assign(const T& v) const {
    check_write<Space>(at_, sizeof(T));
    return *at_ = v;
  }
  T* at_;
};

template <class T, MemorySpace Space>
class MemoryPointer {
 public:
  using Number = std::remove_const_t<T>;

  MemoryPointer() = default;
  MemoryPointer(std::nullptr_t) {}                  // NOLINT(google-explicit-constructor): it is used like a T*
  MemoryPointer(T* address) : address_(address) {}  // NOLINT(google-explicit-constructor)
  template <class U>
  requires(std::is_convertible_v<U*, T*> && !std::is_same_v<U, T>) MemoryPointer(MemoryPointer<U, Space> other)
      : address_(other.address()) {}  // NOLINT(google-explicit-constructor)

  decltype(auto) operator[](std::ptrdiff_t i) const {
    if constexpr (std::is_const_v<T>) {
      check_read<Space>(at(i), sizeof(T));
      return Number{*at(i)};
    } else {
      return MemoryReference<T, Space>(at(i));
    }
  }
  decltype(auto) operator*() const { return (*this)[0]; }

  MemoryPointer operator+(std::ptrdiff_t by) const { return MemoryPointer(at(by)); }
  MemoryPointer operator-(std::ptrdiff_t by) const { return MemoryPointer(at(-by)); }
  MemoryPointer& operator+=(std::ptrdiff_t by) {
    address_ = at(by);
    return *this;
  }
  MemoryPointer& operator-=(std::ptrdiff_t by) {
    address_ = at(-by);
    return *this;
  }
  bool operator==(std::nullptr_t) const { return address_ == nullptr; }
  explicit operator bool() const { return address_ != nullptr; }

  // For the emulation alone: no check.
  T* address() const { return address_; }
  auto* bytes() const {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return reinterpret_cast<Byte*>(address_);
  }

 private:
  // Any number may be added to any address, nullptr included, as on a GPU.
  T* at(std::ptrdiff_t i) const {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address_) + static_cast<uintptr_t>(i) * sizeof(T));
  }

  T* address_ = nullptr;
};

template <class T>
using Global = MemoryPointer<T, MemorySpace::kGlobal>;
template <class T>
using Shared = MemoryPointer<T, MemorySpace::kShared>;

template <class T>
const std::byte* address_of(Global<T> p) {
  return p.bytes();
}

template <class U, class T, MemorySpace Space>
DEVICE MemoryPointer<U, Space> cast(MemoryPointer<T, Space> p) {
  static_assert(std::is_const_v<U> || !std::is_const_v<T>);
  return MemoryPointer<U, Space>(reinterpret_cast<U*>(p.address()));
}

template <class T>
DEVICE Shared<T> shared(size_t offset) {
  return Shared<T>(reinterpret_cast<T*>(emulated::shared_memory(offset)));
}

template <int N>
struct Words {
  alignas(4 * N) uint32_t w[N];
};

template <int N, class T, MemorySpace Space>
DEVICE Words<N> load(MemoryPointer<T, Space> p) {
  static_assert(N == 1 || N == 2 || N == 4);
  check_read<Space>(p.address(), sizeof(Words<N>));
  Words<N> words;
  std::memcpy(&words, p.address(), sizeof words);
  return words;
}
template <int N, class T>
DEVICE Words<N> load_once(Global<T> p) {
  return load<N>(p);
}
template <int N, class T, MemorySpace Space>
DEVICE void store(MemoryPointer<T, Space> p, Words<N> words) {
  static_assert((N == 1 || N == 2 || N == 4) && !std::is_const_v<T>);
  check_write<Space>(p.address(), sizeof words);
  std::memcpy(p.address(), &words, sizeof words);
}

}  // namespace quire::cuda
