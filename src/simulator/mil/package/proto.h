// A protobuf cursor that never trusts a wire type: protozero asserts where a hostile file must be an error.
// Threads: one cursor per thread.
// Ownership: views point into the bytes that were given.
#pragma once

#include <cstdint>
#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <string_view>
#include <vector>

#include "mil/engine.h"

namespace coremlsim::mil {

class Proto {
 public:
  explicit Proto(std::string_view bytes) : reader_(protozero::data_view(bytes.data(), bytes.size())) {}

  // Moves to the next field; the previous one must have been read or is skipped here.
  bool next() {
    if (pending_) reader_.skip();
    pending_ = reader_.next();
    return pending_;
  }
  std::uint32_t field() const { return reader_.tag(); }

  std::string_view bytes() {
    need(protozero::pbf_wire_type::length_delimited);
    const protozero::data_view view = reader_.get_view();
    return {view.data(), view.size()};
  }
  Proto message() { return Proto(bytes()); }
  std::uint64_t varint() {
    need(protozero::pbf_wire_type::varint);
    return reader_.get_uint64();
  }
  std::int64_t integer() { return static_cast<std::int64_t>(varint()); }
  float fixed_float() {
    need(protozero::pbf_wire_type::fixed32);
    return reader_.get_float();
  }
  double fixed_double() {
    need(protozero::pbf_wire_type::fixed64);
    return reader_.get_double();
  }
  // One chunk of a repeated varint field, packed or not.
  void append_varints(std::vector<std::int64_t>& values) {
    if (reader_.wire_type() == protozero::pbf_wire_type::varint) {
      values.push_back(integer());
      return;
    }
    const std::string_view packed = bytes();
    const char* at = packed.data();
    const char* const end = at + packed.size();
    while (at != end) values.push_back(static_cast<std::int64_t>(protozero::decode_varint(&at, end)));
  }
  bool is_length_delimited() const { return reader_.wire_type() == protozero::pbf_wire_type::length_delimited; }

 private:
  void need(protozero::pbf_wire_type type) {
    if (!pending_ || reader_.wire_type() != type) {
      throw ModelError("protobuf field " + std::to_string(pending_ ? reader_.tag() : 0) +
                       " has an unexpected wire type");
    }
    pending_ = false;
  }
  protozero::pbf_reader reader_;
  bool pending_ = false;
};

}  // namespace coremlsim::mil
