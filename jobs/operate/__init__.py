"""Operations on a lake: what people and schedules do beside the stream."""
