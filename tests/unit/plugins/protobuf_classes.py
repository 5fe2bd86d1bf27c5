"""Generated message classes without protoc: their definitions are made here."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_FILE = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto2")
_order = _FILE.message_type.add(name="Order")
_order.field.add(name="id", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
_order.field.add(name="amount", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
_order.field.add(name="part_of", number=3, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".shop.Order")
_address = _FILE.message_type.add(name="Address")
_address.field.add(name="city", number=1, type=Field.TYPE_STRING, label=Field.LABEL_REQUIRED)
_parcel = _FILE.message_type.add(name="Parcel")
_parcel.field.add(name="to", number=1, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".shop.Address")
_POOL = DescriptorPool()
_POOL.Add(_FILE)

Order: Any = GetMessageClass(_POOL.FindMessageTypeByName("shop.Order"))
"""id, amount, part_of (an Order)."""
Parcel: Any = GetMessageClass(_POOL.FindMessageTypeByName("shop.Parcel"))
"""to, with a required city."""
