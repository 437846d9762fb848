// Values of C++ from Python's, strictly: what does not fit raises TypeError or ValueError that names it.
#pragma once

#include <nanobind/nanobind.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace quire::python {

namespace nb = nanobind;

[[noreturn]] inline void refuse_type(std::string_view name, std::string_view expected, nb::handle found) {
  const std::string text = std::string(name) + " must be " + std::string(expected) + ", not " +
                           nb::cast<std::string>(nb::object(nb::str(found.type().attr("__name__"))));
  throw nb::type_error(text.c_str());
}

// int and what converts into it without loss (numpy's integers); not bool. The value lies within T, or ValueError.
template <class T>
T to_integer(nb::handle value, std::string_view name) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) refuse_type(name, "an int", value);
  const nb::object exact = nb::steal(PyNumber_Index(value.ptr()));
  if (!exact.is_valid()) throw nb::python_error();
  if constexpr (std::is_signed_v<T>) {
    int overflow = 0;
    const long long wide = PyLong_AsLongLongAndOverflow(exact.ptr(), &overflow);
    if (overflow == 0 && wide >= std::numeric_limits<T>::min() && wide <= std::numeric_limits<T>::max())
      return static_cast<T>(wide);
  } else {
    const unsigned long long wide = PyLong_AsUnsignedLongLong(exact.ptr());
    if (!PyErr_Occurred() && wide <= std::numeric_limits<T>::max()) return static_cast<T>(wide);
    PyErr_Clear();
  }
  const std::string text = std::string(name) + " must be between " + std::to_string(std::numeric_limits<T>::min()) +
                           " and " + std::to_string(std::numeric_limits<T>::max());
  throw nb::value_error(text.c_str());
}

// float, int and what converts into them (numpy's numbers); not bool, str or None.
inline double to_number(nb::handle value, std::string_view name) {
  const bool number = PyFloat_Check(value.ptr()) || PyIndex_Check(value.ptr()) || nb::hasattr(value, "__float__");
  if (PyBool_Check(value.ptr()) || !number) refuse_type(name, "a number", value);
  const double result = PyFloat_AsDouble(value.ptr());
  if (result == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    throw nb::value_error((std::string(name) + " is too large for a number").c_str());
  }
  return result;
}

inline bool to_bool(nb::handle value, std::string_view name) {
  if (!PyBool_Check(value.ptr())) refuse_type(name, "a bool", value);
  return value.ptr() == Py_True;
}

inline std::string to_text(nb::handle value, std::string_view name) {
  if (!PyUnicode_Check(value.ptr())) refuse_type(name, "a str", value);
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (!utf8) throw nb::python_error();  // half of a surrogate pair
  return {utf8, static_cast<size_t>(size)};
}

// The elements of a list or tuple, by `read(element, name)`.
template <class Read>
auto to_list(nb::handle value, std::string_view name, Read read) {
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) refuse_type(name, "a list", value);
  std::vector<decltype(read(value, name))> all;
  size_t index = 0;
  for (const nb::handle element : nb::iter(value)) {
    all.push_back(read(element, std::string(name) + "[" + std::to_string(index++) + "]"));
  }
  return all;
}

}  // namespace quire::python
